"""An event loop with virtual time: it jumps to the next timer, and runs threads' work itself."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_TIMES_MAX = 10_000


class _Selector:
    """Waits by moving the loop's clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        assert timeout is not None, "nothing is due any more"
        self._loop.seconds += timeout
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in an order that depends on nothing outside of the process."""

    def __init__(
        self, latency: Callable[[], float], ignored: tuple[type[BaseException], ...]
    ) -> None:
        """`latency` returns the seconds until a thread has begun what it was asked to do.

        `ignored` are the exceptions that nobody needs to catch.
        """
        super().__init__()
        self.seconds = 0.0
        self._latency = latency
        self._ignored = ignored
        self._selector = _Selector(self)
        self.errors: list[BaseException] = []
        """Exceptions that no code has caught."""
        self.set_exception_handler(self._note)
        self._tasks: list[asyncio.Task[Any]] = []
        self._times: set[float] = set()
        """The times of timers."""

    def time(self) -> float:
        return self.seconds

    def run_for(self, ms: float) -> None:
        """Let time pass."""
        timer = self.call_later(ms / 1_000, self.stop)
        try:
            self.run_forever()
        finally:
            timer.cancel()

    @contextmanager
    def as_running(self) -> Iterator[None]:
        """Code between two runs may ask for the running loop."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    def create_task(self, *args: Any, **named: Any) -> asyncio.Task[Any]:
        task = super().create_task(*args, **named)
        self._tasks.append(task)
        return task

    def cancel_tasks(self) -> None:
        """Cancel all tasks in the order in which they began."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()

    def call_at(  # type: ignore[override]
        self, when: float, *args: Any, **named: Any
    ) -> asyncio.TimerHandle:
        # Timers of one time would run in any order.
        while when in self._times:
            when = math.nextafter(when, math.inf)
        self._times.add(when)
        if len(self._times) > _TIMES_MAX:
            self._times = {time for time in self._times if time >= self.seconds}
        return super().call_at(when, *args, **named)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, work: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        del executor
        future = self.create_future()
        self.call_later(self._latency(), self._work, future, work, args)
        return future

    def _work(
        self, future: asyncio.Future[Any], work: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        if future.cancelled():
            return
        try:
            result = work(*args)
        except Exception as error:  # noqa: BLE001 - a thread's outermost frame
            future.set_exception(error)
        else:
            future.set_result(result)

    def _note(self, _: object, context: dict[str, Any]) -> None:
        error = context.get("exception") or AssertionError(context.get("message"))
        if not isinstance(error, self._ignored):
            self.errors.append(error)

    def _process_events(self, events: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nothing needs to be woken."""
