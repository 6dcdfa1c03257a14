"""What waits to be written to one connection, sent from where it lies.

Asyncio's transports copy whatever the socket does not take at once. So large buffers are handed
over in pieces, the next one only when the transport has none left: a reply of megabytes is copied
into the kernel and nowhere else, but for the rest of one piece.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from rocketmq_wire.model import Buffer

# A system call costs a few microseconds, the copy of a piece tens of them.
_PIECE_SIZE: Final = 256 * 1024
# Up to here one joined write is cheaper than several.
_JOIN_SIZE_MAX: Final = 16 * 1024


class Output:
    """Writes to a transport that is told never to buffer; the rest waits here in order."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._waiting: deque[memoryview] = deque()
        self._is_paused = False
        self.size = 0
        """Bytes that wait for the reader."""
        transport.set_write_buffer_limits(high=0)

    def write(self, parts: Sequence[Buffer]) -> None:
        """Write buffers in order. They must stay as they are until they are sent."""
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        total = sum(map(len, views))
        if total <= _JOIN_SIZE_MAX:
            joined = b"".join(views)
            if not self._waiting and not self._is_paused:
                self._transport.write(joined)
                return
            views = [memoryview(joined)]
        self._waiting.extend(views)
        self.size += total
        self._send()

    def pause(self) -> None:
        """The transport holds something: the socket is full."""
        self._is_paused = True

    def resume(self) -> None:
        """The transport has sent all it had."""
        self._is_paused = False
        self._send()

    def clear(self) -> None:
        """Nobody reads any more: let go of the buffers."""
        self._waiting.clear()
        self.size = 0

    def _send(self) -> None:
        waiting = self._waiting
        while waiting and not self._is_paused:
            view = waiting[0]
            if len(view) > _PIECE_SIZE:
                piece, waiting[0] = view[:_PIECE_SIZE], view[_PIECE_SIZE:]
            else:
                piece = waiting.popleft()
            self.size -= len(piece)
            # May call pause().
            self._transport.write(piece)
