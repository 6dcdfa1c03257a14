"""A pool of named threads that call listeners; it can grow and shrink while it works."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from rocketmq_client.consumer.common.io_thread import IoThread, now_ms

_LOG = logging.getLogger(__name__)

CAPACITY: Final = 100_000
"""What may wait: more than a thousand queues' pulls at one message a time would be."""
REJECTED_RETRY_MS: Final = 5_000


class ConsumePool:
    """Pulls stop while too many messages are pending; whatever is above `capacity` is rejected."""

    def __init__(self, name: str, size: int, capacity: int = CAPACITY) -> None:
        self._name, self._capacity = name, capacity
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._size = 0
        self.is_closed = False
        self.resize(size)

    def resize(self, size: int) -> None:
        """Have so many threads, soon: those that are too many end when they are next free."""
        with self._lock:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            while self._size < size:
                number = next(self._numbers)
                thread = threading.Thread(
                    target=self._run, name=f"{self._name}-{number}", daemon=True
                )
                self._threads.append(thread)
                self._size += 1
                thread.start()
            while self._size > size:
                self._size -= 1
                self._work.put(None)

    @property
    def size(self) -> int:
        return self._size

    def put(self, work: Callable[[], None]) -> bool:
        """Have it done by the next free thread; False when too much waits, or at the end."""
        if self.is_closed or self._work.qsize() >= self._capacity:
            return False
        self._work.put(work)
        return True

    def shut_down(self, wait_ms: int) -> bool:
        """Drop what has not begun, let what has begun end; False if it takes longer."""
        self.is_closed = True
        leaving = 0
        try:
            while True:
                leaving += self._work.get_nowait() is None
        except queue.Empty:
            pass
        for _ in range(leaving):
            self._work.put(None)
        self.resize(0)
        end = time.monotonic() + wait_ms / 1_000
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            _guarded(work)


class Submitter:
    """Puts work into the pool now or later, and what is rejected again after 5 s."""

    def __init__(self, pool: ConsumePool, io: IoThread) -> None:
        self._pool, self._io = pool, io

    def put(self, work: Callable[[], None]) -> None:
        """Have it done by the pool, from any thread."""
        if self._pool.put(work) or self._pool.is_closed:
            return
        _LOG.warning("too many messages wait to be consumed: trying again in 5 s")
        self.later(work, REJECTED_RETRY_MS)

    def later(self, work: Callable[[], None], delay_ms: int) -> None:
        """Put it in after a while."""
        self._io.post(lambda: self._io.at(now_ms() + delay_ms, lambda: self.put(work)))


def _guarded(work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException:  # noqa: BLE001 - a thread that ends is missed by all that still comes
        _LOG.exception("consumption failed outside of the listener")
