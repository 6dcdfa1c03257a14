"""The I/O thread owns a client instance's connections; other threads give it requests and timers.

Callbacks run in the I/O thread and must not wait. Other threads use `call` and `call_many`, which
wait for the reply, at most for the request's time-out and a second. Every callback is called once:
with the reply, the time-out (checked at least every second), the broken connection, or the end of
the thread.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Final, Protocol, TypeVar, cast

from rocketmq_client.errors import TooManyRequestsError
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.tcp.transport import TcpTransport
from rocketmq_wire.errors import ConnectionLostError, DeadlineExceededError, RocketMQError
from rocketmq_wire.remoting.session import Responder
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import NotifyMembersChanged

R = TypeVar("R", bound=Reply)

_LOG = logging.getLogger(__name__)

OnDone = Callable[[Reply | RocketMQError], None]
PERMITS: Final = 65_535
"""The limit of requests without a reply, as in RocketMQ's client. One more fails at once: the I/O
thread, which could make room, must not wait."""


class RpcHook(Protocol):
    """Called around each request, in the I/O thread; an exception that it raises is logged."""

    def before(self, broker: str | None, request: Request[Reply]) -> Mapping[str, str] | None:
        """May return header fields to add to the request; they are signed with it."""

    def after(
        self, broker: str | None, request: Request[Reply], result: Reply | RocketMQError
    ) -> None: ...


# The longest wait, and so the cost of a lost wake-up.
_STEP_MS_MAX: Final = 1_000
_GRACE_SECONDS: Final = 1.0
_STOP_SECONDS_MAX: Final = 10.0


def now_ms() -> int:
    """The clock of timers, locks and pauses: it never goes backward."""
    return time.monotonic_ns() // 1_000_000


class IoThread:
    """A client instance creates, starts and stops it."""

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        name: str,
        on_notice: Callable[[NotifyMembersChanged], None],
        responder: Responder,
        permits: int = PERMITS,
    ) -> None:
        """`responder` answers requests of brokers in the I/O thread, so it must not wait."""
        self.hooks: tuple[RpcHook, ...] = ()
        self._permits = permits
        self._transport = TcpTransport(settings, responder=responder)
        self._on_notice = on_notice
        self._posted: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._timer_ids = itertools.count()
        self._waiting: dict[int, OnDone] = {}
        self._is_stopping = False
        self._is_closed = False
        self._is_awake = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Close the connections, fail all requests, and wait for the thread to end."""
        self._is_stopping = True
        self._transport.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_STOP_SECONDS_MAX)

    # --- from any thread ----------------------------------------------------------------------

    def post(self, work: Callable[[], None]) -> None:
        """Run `work` in the I/O thread soon."""
        self._posted.append(work)
        if self._is_closed:
            self._fail_posted()
            return
        # A thread that is awake finds the work without a wake-up.
        if not self._is_awake:
            self._transport.wake()

    def submit(
        self, request: Request[Reply], *, broker: str | None, timeout_ms: int, on_done: OnDone
    ) -> None:
        """Send a request; the I/O thread calls `on_done` once, with the reply or the error."""
        self.post(lambda: self.send(request, broker=broker, timeout_ms=timeout_ms, on_done=on_done))

    def tell_slave(self, request: Request[Reply], *, broker: str, broker_id: int) -> None:
        """Send a request to a slave, whose answer nobody waits for."""

        def tell() -> None:
            fields = self._before(broker, request)
            self._transport.tell(broker, request, broker_id=broker_id, fields=fields)

        self.post(tell)

    def call(self, request: Request[R], *, broker: str | None, timeout_ms: int) -> R:
        """Send a request and wait for its reply. Raises RocketMQError."""
        (reply,) = self.call_many([(broker, request)], timeout_ms=timeout_ms)
        if isinstance(reply, RocketMQError):
            raise reply
        return cast("R", reply)

    def call_many(
        self, requests: Sequence[tuple[str | None, Request[Reply]]], *, timeout_ms: int
    ) -> list[Reply | RocketMQError]:
        """Send all requests at once and wait; returns a reply or an error for each."""
        assert threading.current_thread() is not self._thread, "the I/O thread must not wait"
        futures: list[Future[Reply | RocketMQError]] = []
        for broker, request in requests:
            future: Future[Reply | RocketMQError] = Future()
            futures.append(future)
            self.submit(request, broker=broker, timeout_ms=timeout_ms, on_done=future.set_result)
        end = time.monotonic() + timeout_ms / 1_000 + _GRACE_SECONDS
        return [self._wait(future, end, timeout_ms) for future in futures]

    def _wait(
        self, future: Future[Reply | RocketMQError], end: float, timeout_ms: int
    ) -> Reply | RocketMQError:
        try:
            return future.result(max(0.0, end - time.monotonic()))
        except FutureTimeoutError:
            if self._is_closed:
                return _shut_down()
            return DeadlineExceededError("the cluster", f"waited {timeout_ms} ms")

    # --- in the thread ------------------------------------------------------------------------

    def send(
        self, request: Request[Reply], *, broker: str | None, timeout_ms: int, on_done: OnDone
    ) -> None:
        """As `submit`, called in the I/O thread."""
        if self._is_closed:
            on_done(_shut_down(broker))
            return
        if len(self._waiting) >= self._permits:
            on_done(TooManyRequestsError(len(self._waiting)))
            return
        fields: Mapping[str, str] | None = None
        if self.hooks:
            fields = self._before(broker, request)
            on_done = self._hooked(request, broker, on_done)
        ticket = self._transport.start(request, broker, timeout_ms=timeout_ms, fields=fields)
        self._waiting[ticket] = on_done

    def at(self, due_ms: int, work: Callable[[], None]) -> None:
        """Run `work` in the I/O thread at a time of `now_ms()`; called in the I/O thread."""
        heapq.heappush(self._timers, (due_ms, next(self._timer_ids), work))

    def _before(self, broker: str | None, request: Request[Reply]) -> dict[str, str]:
        """Call the hooks before a request; returns the header fields that they add."""
        fields: dict[str, str] = {}

        def call(hook: RpcHook) -> None:
            fields.update(hook.before(broker, request) or {})

        for hook in self.hooks:
            self._guarded(partial(call, hook))
        return fields

    def _hooked(self, request: Request[Reply], broker: str | None, on_done: OnDone) -> OnDone:
        hooks = self.hooks

        def finish(result: Reply | RocketMQError) -> None:
            for hook in hooks:
                self._guarded(partial(hook.after, broker, request, result))
            on_done(result)

        return finish

    def _run(self) -> None:
        _LOG.info("%s: service started", self._thread.name)
        try:
            while not self._is_stopping:
                self._run_once()
        except Exception:  # noqa: BLE001 - the thread's outermost frame
            _LOG.exception("the I/O thread has died")
        finally:
            self._is_closed = True
            self._transport.close()
            lost = _shut_down()
            waiting, self._waiting = self._waiting, {}
            for on_done in waiting.values():
                self._guarded(partial(on_done, lost))
            self._fail_posted()
            _LOG.info("%s: service ended", self._thread.name)

    def _fail_posted(self) -> None:
        """Run late work, whose requests fail at once instead of timing out."""
        while True:
            try:
                work = self._posted.popleft()
            except IndexError:
                return
            self._guarded(work)

    def _run_once(self) -> None:
        self._is_awake = True
        while self._posted:
            self._guarded(self._posted.popleft())
        time_ms = now_ms()
        while self._timers and self._timers[0][0] <= time_ms:
            self._guarded(heapq.heappop(self._timers)[2])
        due_ms = self._timers[0][0] - now_ms() if self._timers else _STEP_MS_MAX
        self._is_awake = False
        # Work posted while the flag was set sent no wake-up.
        wait_ms = 0 if self._posted else max(0, min(due_ms, _STEP_MS_MAX))
        done = self._transport.completed(timeout_ms=wait_ms)
        self._is_awake = True
        for ticket, result in done:
            on_done = self._waiting.pop(ticket, None)
            if on_done is not None:
                self._guarded(partial(on_done, result))
        for notice in self._transport.take_notices():
            self._guarded(partial(self._on_notice, notice))

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run a callback; its exception must not end the connections of the others."""
        try:
            work()
        except BaseException:  # noqa: BLE001 - a callback's outermost frame
            _LOG.exception("a callback in the I/O thread failed")


def _shut_down(broker: str | None = None) -> ConnectionLostError:
    return ConnectionLostError(broker or "the cluster", "the client is shut down")
