"""Bytes of a stream -> gRPC messages, each landed once in a buffer of its own.

0 COMPRESSED u8   1 SIZE u32   5 MESSAGE
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from rocketmq_wire.errors import RemoteProtocolError

PREFIX: Final = struct.Struct(">BI")


class MessageAssembler:
    """Takes a stream's bytes as they come; large messages are received into `rest`."""

    __slots__ = ("_allocate", "_message", "_prefix", "_size_max", "rest")

    def __init__(self, size_max: int, allocate: Callable[[int], memoryview]) -> None:
        self._size_max = size_max
        self._allocate = allocate
        self._prefix = bytearray()
        self._message: memoryview | None = None
        self.rest: memoryview | None = None
        """What is missing of the message under way; None between messages."""

    @property
    def is_between_messages(self) -> bool:
        """True when nothing is missing: the stream may end here."""
        return self.rest is None and not self._prefix

    def feed(self, content: memoryview) -> tuple[int, memoryview | None]:
        """Take the first bytes of `content`: how many were taken, and a message if one is whole.

        Raises RemoteProtocolError for a message that no peer of ours may send.
        """
        if self.rest is None:
            taken = min(len(content), PREFIX.size - len(self._prefix))
            self._prefix += content[:taken]
            if len(self._prefix) < PREFIX.size:
                return taken, None
            return taken, self._begin()
        taken = min(len(content), len(self.rest))
        self.rest[:taken] = content[:taken]
        return taken, self.advance(taken)

    def advance(self, size: int) -> memoryview | None:
        """The first `size` bytes of `rest` were received; the message, if that was all."""
        assert self.rest is not None
        self.rest = self.rest[size:]
        return None if len(self.rest) else self._finish()

    def _begin(self) -> memoryview | None:
        compressed, size = PREFIX.unpack(self._prefix)
        if compressed:
            raise RemoteProtocolError("a message is compressed, which we did not offer to take")
        if size > self._size_max:
            raise RemoteProtocolError(
                f"a message of {size} bytes is over the limit of {self._size_max}"
            )
        self._prefix.clear()
        self._message = self.rest = self._allocate(size)
        return None if size else self._finish()

    def _finish(self) -> memoryview:
        message, self._message, self.rest = self._message, None, None
        assert message is not None
        return message
