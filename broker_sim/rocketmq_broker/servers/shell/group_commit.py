"""Group commit: one thread that syncs the log for many waiting sends at a time.

The loop orders a sync; the thread runs it and reports the position up to which the log is durable.
The next sync serves all sends that come while one runs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue


class GroupCommit:
    """Runs `sync` on a thread. `on_durable` and `on_failure` are called on the loop."""

    def __init__(
        self,
        sync: Callable[[], int],
        *,
        on_durable: Callable[[int], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._sync = sync
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._orders: SimpleQueue[bool] = SimpleQueue()
        self._ordered_end = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._run, name="rocketmq-flush", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """True if no sync runs and none is ordered."""
        return self._idle.is_set()

    def order(self, end: int) -> None:
        """Order a sync of the log up to an appended position; call it on the loop's thread."""
        self._ordered_end = max(self._ordered_end, end)
        if self._idle.is_set():
            self._begin()

    async def finish(self) -> None:
        """Wait for the ordered syncs, then end the thread."""
        await self._idle.wait()
        self._orders.put(False)
        self._thread.join()

    def _begin(self) -> None:
        self._idle.clear()
        self._orders.put(True)

    def _run(self) -> None:
        while self._orders.get():
            self._sync_once()

    def _sync_once(self) -> None:
        try:
            durable_end = self._sync()
        except Exception as error:  # noqa: BLE001 - the thread's outermost frame
            self._loop.call_soon_threadsafe(self._failed, error)
        else:
            self._loop.call_soon_threadsafe(self._synced, durable_end)

    def _synced(self, durable_end: int) -> None:
        # If more was ordered meanwhile, the disk works while the replies are written.
        if self._ordered_end > durable_end:
            self._begin()
        else:
            self._idle.set()
        self._on_durable(durable_end)

    def _failed(self, error: Exception) -> None:
        self._ordered_end = 0
        self._idle.set()
        self._on_failure(error)
