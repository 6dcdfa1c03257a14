"""Memory for frames that have arrived in part, over all connections of a port.

A large frame has memory for all its bytes from its header on. If too many are unfinished, the next
ones are not read on until there is room, and a frame that takes long is given up for them: a sender
that stops in the middle keeps nobody waiting for more than some seconds.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

_SECONDS_MAX: Final = 5.0
"""A frame may take longer while there is room. 16 MiB need 27 Mbit/s to arrive in this time."""


class Receiver(Protocol):
    """A connection that receives a large frame."""

    def read_on(self) -> None:
        """There is room for the frame."""

    def abort(self) -> None:
        """The frame took too long: close the connection."""


class UnfinishedFrames:
    """Every frame takes room before it is read, and gives it back when it is whole or given up."""

    def __init__(self, size_max: int) -> None:
        self._left = size_max
        self._admitted: dict[Receiver, tuple[int, float]] = {}
        """Sizes, and when each frame began to be read: the oldest first."""
        self._waiting: dict[Receiver, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def take(self, receiver: Receiver, size: int) -> bool:
        """True if the frame may be read now; else `read_on` is called when it may."""
        if not self._waiting and self._has_room(size):
            self._admit(receiver, size)
            return True
        self._waiting[receiver] = size
        self._watch()
        return False

    def give_back(self, receiver: Receiver) -> None:
        """The receiver's frame is whole, or its connection is closed."""
        self._waiting.pop(receiver, None)
        size, _ = self._admitted.pop(receiver, (0, 0.0))
        self._left += size
        while self._waiting:
            following, size = next(iter(self._waiting.items()))
            if not self._has_room(size):
                return
            del self._waiting[following]
            self._admit(following, size)
            following.read_on()

    def _has_room(self, size: int) -> bool:
        # A frame that is larger than all the room must be alone.
        return size <= self._left or not self._admitted

    def _admit(self, receiver: Receiver, size: int) -> None:
        self._left -= size
        self._admitted[receiver] = size, asyncio.get_running_loop().time()

    def _watch(self) -> None:
        if self._timer is None:
            _, began_at = next(iter(self._admitted.values()))
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(began_at + _SECONDS_MAX, self._give_up_oldest)

    def _give_up_oldest(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        oldest, (_, began_at) = next(iter(self._admitted.items()))
        if asyncio.get_running_loop().time() - began_at >= _SECONDS_MAX:
            oldest.abort()
            self.give_back(oldest)
        if self._waiting:
            self._watch()
