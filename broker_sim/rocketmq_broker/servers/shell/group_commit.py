"""One thread that makes the log durable for many waiting sends at a time.

The loop asks for a sync; the thread runs one and reports how far the log is durable. Whoever asks
while a sync runs is served by the next one, together with all others who asked meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue


class GroupCommit:
    """Runs `sync` off the loop. `on_durable` and `on_failure` are called on the loop."""

    def __init__(
        self,
        sync: Callable[[], int],
        *,
        on_durable: Callable[[int], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._sync, self._on_durable, self._on_failure = sync, on_durable, on_failure
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
        """Have the log synced up to a position that is appended by now; on the loop's thread."""
        self._ordered_end = max(self._ordered_end, end)
        if self._idle.is_set():
            self._begin()

    async def finish(self) -> None:
        """Wait for the syncs that were ordered, then end the thread."""
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
        # Ordered meanwhile: the disk works on while the answers are written.
        if self._ordered_end > durable_end:
            self._begin()
        else:
            self._idle.set()
        self._on_durable(durable_end)

    def _failed(self, error: Exception) -> None:
        self._ordered_end = 0
        self._idle.set()
        self._on_failure(error)
