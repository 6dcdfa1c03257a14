"""A pool of named threads that call listeners; it can grow and shrink while it works."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable

_LOG = logging.getLogger(__name__)


class ConsumePool:
    """What waits is bounded by who puts it: pulls stop while too many messages are pending."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._size = 0
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

    def put(self, work: Callable[[], None]) -> None:
        """Have it done by the next free thread."""
        self._work.put(work)

    def shut_down(self, wait_ms: int) -> bool:
        """Drop what has not begun, let what has begun end; False if it takes longer."""
        try:
            while True:
                self._work.get_nowait()
        except queue.Empty:
            pass
        self.resize(0)
        end = time.monotonic() + wait_ms / 1_000
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            _guarded(work)


def _guarded(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:  # noqa: BLE001 - the thread's outermost frame
        _LOG.exception("consumption failed outside of the listener")
