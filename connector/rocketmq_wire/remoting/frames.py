"""Remoting frames <-> bytes; the decoder lends the buffer to receive into.

    0 TOTAL i32: bytes behind this field   4 MARK i32: header codec (8 bits), header size (24 bits)
    8 HEADER   .. BODY to the frame's end

Every length is checked before anything is allocated for it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketmq_wire.errors import (
    FrameTooLargeError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.headers import Header, HeaderCodec, decode_header, encode_header

FRAME_SIZE_MAX: Final = 16 * 1024 * 1024
"""Of a whole frame, its length field included: what RocketMQ's own peers take."""
STAGING_SIZE: Final = 16 * 1024
"""Small frames and headers are received here; of a large body no more than this is ever copied."""

_HEAD = struct.Struct(">iI")
_INT = struct.Struct(">i")
HEAD_SIZE: Final = _HEAD.size
_HEADER_SIZE_MASK: Final = 0xFF_FFFF
_CODECS: Final = {int(codec): codec for codec in HeaderCodec}


@dataclass(frozen=True, slots=True)
class Frame:
    """One length-prefixed unit of the remoting protocol."""

    header: Header
    body: Buffer = b""
    codec: HeaderCodec = HeaderCodec.JSON


def encode_frame(frame: Frame) -> bytes:
    """A whole frame in one piece."""
    return encode_frame_head(frame.header, buffer_size(frame.body), frame.codec) + frame.body


def encode_frame_head(
    header: Header, body_size: int, codec: HeaderCodec = HeaderCodec.JSON
) -> bytes:
    """What goes before a body of `body_size` bytes, so that the body is sent from where it lies.

    Raises LocalProtocolError when peers would refuse the frame for its size.
    """
    encoded = encode_header(header, codec)
    total = 4 + len(encoded) + body_size
    if 4 + total > FRAME_SIZE_MAX or len(encoded) > _HEADER_SIZE_MASK:
        raise LocalProtocolError(
            f"a frame of {4 + total} bytes is over the {FRAME_SIZE_MAX} that peers take"
        )
    return _HEAD.pack(total, codec << 24 | len(encoded)) + encoded


def pack_head(header_size: int) -> bytes:
    """What goes before a JSON header in a frame without a body."""
    return _HEAD.pack(4 + header_size, header_size)  # The codec above the size is 0: JSON.


def buffer_size(buffer: Buffer) -> int:
    """The bytes of a buffer, whatever the items of a memoryview are."""
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


class FrameDecoder:
    """Bytes in, frames out. Not thread-safe.

    Receive into `next_buffer()`, report it by `received(n)`, then drain `next_frame()`. While a
    large body is awaited, the buffer is exactly its missing rest, in a buffer of its own.
    After an error the decoder stays broken: where the next frame begins is not known.
    """

    def __init__(
        self,
        frame_size_max: int = FRAME_SIZE_MAX,
        *,
        staging_size: int = STAGING_SIZE,
        allocate: Callable[[int], Buffer] = bytearray,
        take: Callable[[Buffer, int, int, int], bool] = lambda *_: False,
    ) -> None:
        """`allocate` makes the buffers of large bodies; its buffers must be writable.

        `take` is shown each small frame with a JSON header before anybody reads it: the buffer, and
        where in it the header, the body and what is behind the frame begin. True: it was taken.
        """
        self._frame_size_max = frame_size_max
        self._allocate = allocate
        self._take = take
        self._staging = memoryview(bytearray(max(staging_size, _HEAD.size)))
        self._start = 0
        self._end = 0
        # A large frame under way: where its rest goes, and how to finish it.
        self._rest: memoryview | None = None
        self._finish: Callable[[], Frame] | None = None
        self._frames: deque[Frame] = deque()
        self._error: ProtocolError | None = None

    @property
    def is_between_frames(self) -> bool:
        """True when nothing is missing: the peer may close the connection here."""
        return self._rest is None and self._start == self._end

    def next_buffer(self) -> memoryview:
        """Where to receive into: never empty, valid until the next call of `received`."""
        if self._error is not None:
            raise self._error
        if self._rest is not None:
            return self._rest
        if self._start:
            left = self._end - self._start
            self._staging[:left] = self._staging[self._start : self._end]
            self._start, self._end = 0, left
        return self._staging[self._end :]

    def received(self, size: int) -> None:
        """Take over the first `size` bytes of the buffer last lent."""
        if self._rest is None:
            if not 0 <= size <= len(self._staging) - self._end:
                raise ValueError(f"{size} bytes were not lent")
            self._end += size
        else:
            if not 0 <= size <= len(self._rest):
                raise ValueError(f"{size} bytes were not lent")
            self._rest = self._rest[size:]
        try:
            self._drain()
        except ProtocolError as error:
            self._error = error

    def next_frame(self) -> Frame | None:
        """The next whole frame, or None until more bytes came.

        Raises RemoteProtocolError, behind the last good frame, when the peer's bytes are no frames.
        """
        if self._frames:
            return self._frames.popleft()
        if self._error is not None:
            raise self._error
        return None

    def feed(self, data: Buffer) -> None:
        """Receive from a buffer; for tests and for sources that bring their own."""
        view = memoryview(data).cast("B")
        while len(view) and self._error is None:
            buffer = self.next_buffer()
            size = min(len(view), len(buffer))
            buffer[:size] = view[:size]
            self.received(size)
            view = view[size:]

    def _drain(self) -> None:
        while True:
            if self._rest is not None:
                if len(self._rest) or self._finish is None:
                    return
                self._frames.append(self._finish())
                self._rest = self._finish = None
            elif not self._take_from_staging():
                return

    def _take_from_staging(self) -> bool:
        """Move on by one frame, whole or begun; False when more bytes are needed for that."""
        there = self._end - self._start
        if there < _INT.size:
            return False
        (total,) = _INT.unpack_from(self._staging, self._start)
        # Checked before anything else arrives: a peer must not make us hold 2 GiB.
        if total + 4 > self._frame_size_max:
            raise FrameTooLargeError(total + 4, self._frame_size_max)
        if total < 4:
            raise RemoteProtocolError(f"a frame of {total} bytes has no room for its own mark")
        if there < _HEAD.size:
            return False
        codec, header_size = self._check_mark(total)
        body_at = _HEAD.size + header_size
        frame_size = 4 + total
        if there >= frame_size:
            start = self._start
            self._start += frame_size
            if codec is HeaderCodec.JSON and self._take(
                self._staging, start + _HEAD.size, start + body_at, start + frame_size
            ):
                return True
            frame = self._staging[start : start + frame_size]
            # The staging buffer is used again, so a small body is copied out of it.
            header = decode_header(frame[_HEAD.size : body_at], codec)
            self._frames.append(Frame(header, bytes(frame[body_at:]), codec))
            return True
        if frame_size <= len(self._staging):
            return False
        if body_at > len(self._staging):
            self._begin_whole(frame_size, body_at, codec)
            return True
        if there < body_at:
            return False
        self._begin_body(frame_size - body_at, body_at, codec)
        return True

    def _check_mark(self, total: int) -> tuple[HeaderCodec, int]:
        (_, mark) = _HEAD.unpack_from(self._staging, self._start)
        kind, header_size = mark >> 24, mark & _HEADER_SIZE_MASK
        codec = _CODECS.get(kind)
        if codec is None:
            raise RemoteProtocolError(
                f"a frame's header has serialization type {kind}, which is unknown; "
                "is this the port of another protocol?"
            )
        if header_size > total - 4:
            raise RemoteProtocolError(
                f"a header of {header_size} bytes does not fit a frame of {total}"
            )
        return codec, header_size

    def _begin_body(self, body_size: int, body_at: int, codec: HeaderCodec) -> None:
        """Read the header, which is there, and have the body received into its own buffer."""
        header = decode_header(
            self._staging[self._start + _HEAD.size : self._start + body_at], codec
        )
        body = memoryview(self._allocate(body_size))
        self._move_staged(body, self._start + body_at)
        self._finish = lambda: Frame(header, body, codec)

    def _begin_whole(self, frame_size: int, body_at: int, codec: HeaderCodec) -> None:
        """Have a frame whose header is larger than the staging buffer received in one piece."""
        frame = memoryview(self._allocate(frame_size))
        self._move_staged(frame, self._start)
        self._finish = lambda: Frame(
            decode_header(frame[_HEAD.size : body_at], codec), frame[body_at:], codec
        )

    def _move_staged(self, target: memoryview, start: int) -> None:
        size = self._end - start
        target[:size] = self._staging[start : self._end]
        self._rest = target[size:]
        self._start = self._end = 0
