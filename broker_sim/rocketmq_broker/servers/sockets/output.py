"""The unsent output of one connection, sent without copies.

Asyncio's transports copy all bytes that the socket does not take at once. So large buffers go
straight to the socket, as far as it takes them in one system call. Only a last small piece goes
through the transport, which reports when the socket has room again. Encrypted output always goes
through the transport, one piece after the other.

Small replies that become ready one after the other are sent together: a system call for each, and a
wake-up of the reader for each, would cost more than most replies do.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import deque
from collections.abc import Sequence
from typing import Final

from rocketmq_broker.servers.sockets.tls_layer import TlsLayer
from rocketmq_wire.model import Buffer

# Bytes that the transport encrypts at once.
_PIECE_SIZE: Final = 256 * 1024
# Bytes that the transport copies, so that it reports when the socket has room. The kernel reports
# room only when a third of its buffer is free, and larger calls cost less: with a slow reader, a
# byte takes 0.26 ns in calls with all the output, and 0.38 ns in calls of 256 KiB.
_WAITING_SIZE: Final = 4 * 1024
_PARTS_MAX: Final = 64
# Up to this size one joined write is cheaper than several.
_JOIN_SIZE_MAX: Final = 16 * 1024


class Output:
    """Writes to a transport without a buffer of its own; unsent output waits here in order."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._waiting: deque[memoryview] = deque()
        self._is_paused = False
        self._small: list[bytes] = []
        """Small writes to send together, before all later output."""
        self._small_size = 0
        self.is_holding = False
        """True if small writes wait for `release`."""
        self._is_ending = False
        """True if the transport is to be closed once everything is sent."""
        self._descriptor: int | None = None
        if not isinstance(transport, TlsLayer):
            self._descriptor = transport.get_extra_info("socket").fileno()
        self.size = 0
        """The number of bytes that wait for the reader."""
        transport.set_write_buffer_limits(high=0)

    def write(self, parts: Sequence[Buffer]) -> None:
        """Write buffers in order. The caller must not change them before they are sent."""
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
        """Collect small writes until `release`."""
        self.is_holding = True

    def release(self) -> None:
        """Send the collected writes."""
        self.is_holding = False
        self._send_small()

    def close(self) -> None:
        """Close the transport once everything written is sent."""
        self.release()
        self._is_ending = True
        self._send()

    def _send_small(self) -> None:
        if not self._small:
            return
        joined = self._small[0] if len(self._small) == 1 else b"".join(self._small)
        self._small, self._small_size = [], 0
        if self._waiting or self._is_paused:
            self._queue([memoryview(joined)])
        elif not self._transport.is_closing():
            # May call pause().
            self._transport.write(joined)

    def _queue(self, views: list[memoryview]) -> None:
        self._waiting.extend(views)
        self.size += sum(map(len, views))
        self._send()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        """Continue after the transport has sent its rest."""
        self._is_paused = False
        self._send()

    def clear(self) -> None:
        """Release the buffers and the socket of a connection that is lost."""
        self._waiting.clear()
        self._small, self._small_size = [], 0
        self._descriptor = None
        self.size = 0

    def _send(self) -> None:
        waiting = self._waiting
        while waiting and not self._is_paused:
            if self._transport.is_closing():
                # The connection is broken: the transport would log each write to it.
                self.clear()
                return
            piece_size = _PIECE_SIZE
            if self._descriptor is not None:
                if self._send_directly(self._descriptor):
                    continue
                piece_size = _WAITING_SIZE
            piece = self._next(piece_size)
            self.size -= len(piece)
            # May call pause().
            self._transport.write(piece)
        if self._is_ending and not waiting:
            self._transport.close()

    def _send_directly(self, descriptor: int) -> bool:
        """Send as much as the socket takes; True if it took everything passed to it."""
        views = list(itertools.islice(self._waiting, _PARTS_MAX))
        try:
            sent = os.writev(descriptor, views)
        except OSError:
            # The socket is full or broken; the transport ends a broken connection.
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
