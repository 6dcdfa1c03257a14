"""A pool of named threads that call listeners; its size may change while it works."""

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
"""The limit of waiting batches, above a thousand queues' pulls in batches of one message."""
_REJECTED_DELAY_MS: Final = 5_000


class ConsumePool:
    """Rejects work above `capacity`; usually flow control stops the pulls before that."""

    def __init__(self, name: str, size: int, io: IoThread, capacity: int = CAPACITY) -> None:
        self._name = name
        self._io = io
        self._capacity = capacity
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._size = 0
        self.is_closed = False
        self.resize(size)

    def resize(self, size: int) -> None:
        """Change the number of threads; surplus ones end when free, closed pools get none."""
        with self._lock:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            while self._size < size and not self.is_closed:
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

    def put(self, work: Callable[[], None]) -> bool:
        """Let the next free thread run `work`; False if too much waits or the pool is closed."""
        if self.is_closed or self._work.qsize() >= self._capacity:
            return False
        self._work.put(work)
        return True

    def submit(self, work: Callable[[], None]) -> None:
        """Let the pool run `work`; rejected work is repeated after 5 s."""
        if self.put(work) or self.is_closed:
            return
        _LOG.warning("too many messages wait to be consumed: retrying in 5 s")
        self.later(work, _REJECTED_DELAY_MS)

    def later(self, work: Callable[[], None], delay_ms: int) -> None:
        self._io.post(lambda: self._io.at(now_ms() + delay_ms, lambda: self.submit(work)))

    def shut_down(self, wait_ms: int) -> bool:
        """Drop waiting work, and wait for running work to end; False if the time is over."""
        self.is_closed = True
        surplus = 0
        try:
            while True:
                surplus += self._work.get_nowait() is None
        except queue.Empty:
            pass
        for _ in range(surplus):
            self._work.put(None)
        self.resize(0)
        end = time.monotonic() + wait_ms / 1_000
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException:  # noqa: BLE001, PERF203 - the thread must stay for later work
                _LOG.exception("consumption failed outside of the listener")
