"""What waits to be written to one connection, sent from where it lies.

Asyncio's transports copy whatever the socket does not take at once. So large buffers go straight
into the socket, as much as it takes in one system call, and only a last small piece through the
transport, which says when there is room again. What is encrypted has no other way than the
transport: there, pieces follow each other when the transport has none left.

Small answers that become ready one after the other go together: a system call for each, and a
reader that wakes up for each, cost more than most answers do.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import deque
from collections.abc import Sequence
from typing import Final

from rocketmq_broker.servers.sockets.tls_layer import EncryptedTransport
from rocketmq_wire.model import Buffer

# Of what the transport has to encrypt.
_PIECE_SIZE: Final = 256 * 1024
# What the transport copies and keeps to tell us when the socket has room. The kernel says so only
# when a third of its buffer is free, and the larger the calls, the less they cost: sending a byte
# to a reader that is the slower one takes 0.26 ns in calls of all there is, and 0.38 in 256 KiB.
_WAITING_SIZE: Final = 4 * 1024
_PARTS_MAX: Final = 64
# Up to here one joined write is cheaper than several.
_JOIN_SIZE_MAX: Final = 16 * 1024


class Output:
    """Writes to a transport that is told never to buffer; the rest waits here in order."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._waiting: deque[memoryview] = deque()
        self._is_paused = False
        self._small: list[bytes] = []
        """Held back, to be sent together; in front of all that is written next."""
        self._small_size = 0
        self.is_holding = False
        """Small writes wait for `release`."""
        self._descriptor: int | None = None
        if not isinstance(transport, EncryptedTransport):
            self._descriptor = transport.get_extra_info("socket").fileno()
        self.size = 0
        """Bytes that wait for the reader."""
        transport.set_write_buffer_limits(high=0)

    def write(self, parts: Sequence[Buffer]) -> None:
        """Write buffers in order. They must stay as they are until they are sent."""
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        total = sum(map(len, views))
        if total > _JOIN_SIZE_MAX:
            self._send_small()
            self._queue(views)
            return
        self._small.append(b"".join(views))
        self._small_size += total
        if not self.is_holding or self._small_size > _JOIN_SIZE_MAX:
            self._send_small()

    def hold(self) -> None:
        """Let small writes wait for each other."""
        self.is_holding = True

    def release(self) -> None:
        """Send what was held back."""
        self.is_holding = False
        self._send_small()

    def _send_small(self) -> None:
        if not self._small:
            return
        joined = self._small[0] if len(self._small) == 1 else b"".join(self._small)
        self._small, self._small_size = [], 0
        if self._waiting or self._is_paused:
            self._queue([memoryview(joined)])
        else:
            # May call pause().
            self._transport.write(joined)

    def _queue(self, views: list[memoryview]) -> None:
        self._waiting.extend(views)
        self.size += sum(map(len, views))
        self._send()

    def pause(self) -> None:
        """The transport holds something: the socket is full."""
        self._is_paused = True

    def resume(self) -> None:
        """The transport has sent all it had."""
        self._is_paused = False
        self._send()

    def clear(self) -> None:
        """Nobody reads any more: let go of the buffers, and of the socket, which is closed next."""
        self._waiting.clear()
        self._small, self._small_size = [], 0
        self._descriptor = None
        self.size = 0

    def _send(self) -> None:
        waiting = self._waiting
        while waiting and not self._is_paused:
            piece_size = _PIECE_SIZE
            if self._descriptor is not None and not self._transport.is_closing():
                if self._send_directly(self._descriptor):
                    continue
                piece_size = _WAITING_SIZE
            piece = self._next(piece_size)
            self.size -= len(piece)
            # May call pause().
            self._transport.write(piece)

    def _send_directly(self, descriptor: int) -> bool:
        """Send what the socket takes; True if that was all it was given."""
        views = list(itertools.islice(self._waiting, _PARTS_MAX))
        try:
            sent = os.writev(descriptor, views)
        except OSError:
            # Full, or broken: the transport finds out which, and ends a broken connection.
            return False
        self.size -= sent
        left = sent
        for view in views:
            if left < len(view):
                self._waiting[0] = view[left:]
                return False
            left -= len(view)
            self._waiting.popleft()
        return True

    def _next(self, size_max: int) -> memoryview:
        view = self._waiting[0]
        if len(view) <= size_max:
            return self._waiting.popleft()
        self._waiting[0] = view[size_max:]
        return view[:size_max]
