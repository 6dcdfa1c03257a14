"""Received bytes -> HTTP/2 frames; large messages land in the buffers of those who assemble them.

Lends the buffer to receive into. Between frames that is a little staging room, so that what comes
together with a frame's head, and has to be copied, stays little. Within the bytes of a large
message it is the message's own buffer, up to the end of the frame.
"""

from __future__ import annotations

from typing import Final, Protocol

from rocketmq_wire import http2
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.grpc_messages import MessageAssembler
from rocketmq_wire.http2 import FrameHead, Kind

# Frames other than DATA are small; header blocks may be spread over several of them.
SMALL_FRAME_SIZE_MAX: Final = 32 * 1024
_LENT_SIZE: Final = 4 * 1024
# A whole small frame fits, with room to lend behind it.
_STAGING_SIZE: Final = SMALL_FRAME_SIZE_MAX + http2.HEAD_SIZE + _LENT_SIZE


class Listener(Protocol):
    """Who is told of frames. What these raise, `received` raises."""

    def assembler_of(self, stream: int) -> MessageAssembler | None: ...
    def on_data(self, head: FrameHead, padding: int) -> None: ...
    def on_message(self, stream: int, message: memoryview | None, *, frame_left: int) -> None: ...
    def on_data_end(self, head: FrameHead) -> None: ...
    def on_frame(self, head: FrameHead, payload: bytes) -> None: ...


class FrameReader:
    """One connection's receiving side. Not thread-safe."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._staging = memoryview(bytearray(_STAGING_SIZE))
        self._start = self._end = 0
        self._data: FrameHead | None = None
        """The DATA frame under way; what is left of it is counted apart from its padding."""
        self._data_left = self._padding_left = 0
        self._is_first = True

    def next_buffer(self) -> memoryview:
        """Where to receive into: never empty, valid until the next call of `received`."""
        rest = self._rest()
        if rest is not None:
            return rest
        if self._start:
            left = self._end - self._start
            self._staging[:left] = self._staging[self._start : self._end]
            self._start, self._end = 0, left
        return self._staging[self._end : self._end + _LENT_SIZE]

    def received(self, size: int) -> None:
        """Take over the first `size` bytes of the buffer last lent. Raises RemoteProtocolError."""
        if self._rest() is None:
            self._end += size
        else:
            self._data_landed(size)
        while self._step():
            pass

    def _rest(self) -> memoryview | None:
        """The part of a large message that the frame under way still brings."""
        if self._data is None or self._start != self._end or not self._data_left:
            return None
        assembler = self._listener.assembler_of(self._data.stream)
        if assembler is None or assembler.rest is None:
            return None
        return assembler.rest[: self._data_left]

    def _data_landed(self, size: int) -> None:
        assert self._data is not None
        stream = self._data.stream
        assembler = self._listener.assembler_of(stream)
        assert assembler is not None
        self._data_left -= size
        message = assembler.advance(size)
        self._listener.on_message(stream, message, frame_left=self._data_left)
        self._end_data_if_over()

    def _step(self) -> bool:
        """Move on by a frame, or by what is here of a DATA frame; False: more bytes are needed."""
        here = self._end - self._start
        if self._data is not None:
            if not here:
                return False
            self._take_data(here)
            return True
        if here < http2.HEAD_SIZE:
            return False
        head = http2.decode_head(self._staging, self._start)
        if self._is_first and head.kind != Kind.SETTINGS:
            begin = bytes(self._staging[self._start : self._start + http2.HEAD_SIZE])
            raise RemoteProtocolError(f"the peer does not speak HTTP/2, it begins with {begin!r}")
        self._is_first = False
        if head.kind == Kind.DATA:
            return self._begin_data(head, here)
        if head.size > SMALL_FRAME_SIZE_MAX:
            raise RemoteProtocolError(f"a frame of kind {head.kind} has {head.size} bytes")
        end = http2.HEAD_SIZE + head.size
        if here < end:
            return False
        payload = bytes(self._staging[self._start + http2.HEAD_SIZE : self._start + end])
        self._start += end
        self._listener.on_frame(head, payload)
        return True

    def _begin_data(self, head: FrameHead, here: int) -> bool:
        start, padding = http2.HEAD_SIZE, 0
        if head.flags & http2.PADDED:
            if here <= start:
                return False
            padding = self._staging[self._start + start]
            start += 1
            if padding + 1 > head.size:
                raise RemoteProtocolError("a frame's padding is longer than the frame")
        self._start += start
        self._data, self._padding_left = head, padding
        self._data_left = head.size - padding - (start - http2.HEAD_SIZE)
        self._listener.on_data(head, head.size - self._data_left)
        self._end_data_if_over()
        return True

    def _take_data(self, here: int) -> None:
        assert self._data is not None
        if self._data_left:
            stream = self._data.stream
            content = self._staging[self._start : self._start + min(here, self._data_left)]
            assembler = self._listener.assembler_of(stream)
            if assembler is None:
                taken = len(content)
            else:
                taken, message = assembler.feed(content)
                left = self._data_left - taken
                self._listener.on_message(stream, message, frame_left=left)
            self._start += taken
            self._data_left -= taken
        else:
            skipped = min(here, self._padding_left)
            self._start += skipped
            self._padding_left -= skipped
        self._end_data_if_over()

    def _end_data_if_over(self) -> None:
        head = self._data
        if head is not None and not self._data_left and not self._padding_left:
            self._data = None
            self._listener.on_data_end(head)
