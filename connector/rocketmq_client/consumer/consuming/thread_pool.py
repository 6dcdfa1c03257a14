"""A pool of named threads that call listeners; its size may change while it works.

A thread that wakes takes work until none waits, and wakes the next thread if there is more. Only
one thread is being woken at a time. With a wake-up for each message, idle threads and the busy one
pass the interpreter's lock back and forth, and short listeners take up to twice as long.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections import deque
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
        self._work: deque[Callable[[], None]] = deque()
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_waking = False
        """A thread will look for work that is put now."""
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._size = 0
        self._surplus = 0
        """Threads that shall end."""
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
                self._surplus += 1
                self._wakes.put(None)

    def put(self, work: Callable[[], None]) -> bool:
        """Let the next free thread run `work`; False if too much waits or the pool is closed."""
        if self.is_closed or len(self._work) >= self._capacity:
            return False
        self._work.append(work)
        self._wake()
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
        self._work.clear()
        self.resize(0)
        end = time.monotonic() + wait_ms / 1_000
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _wake(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            self._wakes.put(None)

    def _run(self) -> None:
        while True:
            self._wakes.get()
            # Reset before the first look: work that is put behind this line wakes a thread itself.
            self._is_waking = False
            while self._work or self._surplus:
                if self._surplus and self._may_end():
                    return
                try:
                    work = self._work.popleft()
                except IndexError:
                    break
                if self._work:
                    self._wake()
                try:
                    work()
                except BaseException:  # noqa: BLE001 - the thread must stay for later work
                    _LOG.exception("consumption failed outside of the listener")

    def _may_end(self) -> bool:
        """Whether this thread is one of the surplus; another one continues with waiting work."""
        with self._lock:
            if not self._surplus:
                return False
            self._surplus -= 1
        if self._work:
            self._wake()
        return True
