"""Remoting frames <-> bytes; the decoder provides the buffer to receive into.

    0 TOTAL i32: bytes after this field   4 MARK i32: header codec (8 bits), header size (24 bits)
    8 HEADER   .. BODY to the frame's end

The decoder checks every length before it allocates memory for it.
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
"""The limit of RocketMQ's own peers for a whole frame, with its length field."""
STAGING_SIZE: Final = 16 * 1024
"""The buffer for small frames and headers; also the limit of bytes copied of a large body."""

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


def encode_frame_head(
    header: Header, body_size: int, codec: HeaderCodec = HeaderCodec.JSON
) -> bytes:
    """The bytes before a body of `body_size` bytes, so that the body is sent without a copy.

    Raises LocalProtocolError if the frame is larger than peers take.
    """
    encoded = encode_header(header, codec)
    total = 4 + len(encoded) + body_size
    if 4 + total > FRAME_SIZE_MAX or len(encoded) > _HEADER_SIZE_MASK:
        raise LocalProtocolError(
            f"a frame of {4 + total} bytes is over the {FRAME_SIZE_MAX} that peers take"
        )
    return _HEAD.pack(total, codec << 24 | len(encoded)) + encoded


def pack_head(header_size: int) -> bytes:
    """The bytes before a JSON header in a frame without a body."""
    return _HEAD.pack(4 + header_size, header_size)  # The codec above the size is 0: JSON.


class FrameDecoder:
    """Bytes in, frames out. Not thread-safe.

    Receive into `next_buffer()`, report the size by `received(n)`, then drain `next_frame()`. While
    a large body is incomplete, the buffer is exactly its missing part, in memory of its own. After
    an error the decoder stays broken, because it cannot find the next frame.
    """

    def __init__(
        self,
        frame_size_max: int = FRAME_SIZE_MAX,
        *,
        header_size_max: int = _HEADER_SIZE_MASK,
        staging_size: int = STAGING_SIZE,
        allocate: Callable[[int], Buffer] = bytearray,
        take: Callable[[Buffer, int, int, int], bool] = lambda *_: False,
    ) -> None:
        """`allocate` makes the buffers of large bodies; its buffers must be writable.

        `take` is called with each small frame that has a JSON header: the buffer, and the positions
        of the header, of the body and of the frame's end. If it returns True, the decoder skips the
        frame.
        """
        self._frame_size_max = frame_size_max
        self._header_size_max = header_size_max
        self._allocate = allocate
        self._take = take
        self._staging = memoryview(bytearray(max(staging_size, _HEAD.size)))
        self._start = 0
        self._end = 0
        # An incomplete large frame: the buffer of its missing part, and how to finish it.
        self._rest: memoryview | None = None
        self._finish: Callable[[], Frame] | None = None
        self._frames: deque[Frame] = deque()
        self._error: ProtocolError | None = None

    @property
    def is_between_frames(self) -> bool:
        """True if no frame is incomplete: the peer may close the connection here."""
        return self._rest is None and self._start == self._end

    def close(self) -> None:
        """Drop what was received. The owner, whom `allocate` may hold, need not be collected."""
        self._rest = self._finish = None
        self._frames.clear()
        self._allocate = bytearray

    @property
    def is_in_large_frame(self) -> bool:
        """True while a frame that `allocate` made room for is incomplete."""
        return self._rest is not None

    def next_buffer(self) -> memoryview:
        """The buffer to receive into: never empty, valid until the next call of `received`."""
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
        """Accept the first `size` bytes of the last `next_buffer()`."""
        if self._rest is None:
            if not 0 <= size <= len(self._staging) - self._end:
                raise ValueError(f"{size} bytes do not fit the buffer")
            self._end += size
        else:
            if not 0 <= size <= len(self._rest):
                raise ValueError(f"{size} bytes do not fit the buffer")
            self._rest = self._rest[size:]
        try:
            self._drain()
        except ProtocolError as error:
            self._error = error

    def next_frame(self) -> Frame | None:
        """The next whole frame, or None until more bytes come.

        Raises RemoteProtocolError, after the last good frame, if the peer's bytes are no frames.
        """
        if self._frames:
            return self._frames.popleft()
        if self._error is not None:
            raise self._error
        return None

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
        """Advance by one frame, whole or begun; False if that needs more bytes."""
        there = self._end - self._start
        if there < _INT.size:
            return False
        (total,) = _INT.unpack_from(self._staging, self._start)
        # Checked before anything else arrives: a peer must not make this process hold 2 GiB.
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
            # A small body is copied, because the decoder reuses the staging buffer.
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
        if header_size > self._header_size_max:
            raise RemoteProtocolError(
                f"a header of {header_size} bytes is over the limit of {self._header_size_max}"
            )
        if header_size > total - 4:
            raise RemoteProtocolError(
                f"a header of {header_size} bytes does not fit a frame of {total}"
            )
        return codec, header_size

    def _begin_body(self, body_size: int, body_at: int, codec: HeaderCodec) -> None:
        """Read the header, and let the body be received into its own buffer."""
        header = decode_header(
            self._staging[self._start + _HEAD.size : self._start + body_at], codec
        )
        body = memoryview(self._allocate(body_size))
        self._move_staged(body, self._start + body_at)
        self._finish = lambda: Frame(header, body, codec)

    def _begin_whole(self, frame_size: int, body_at: int, codec: HeaderCodec) -> None:
        """Let a frame whose header is larger than the staging buffer be received in one piece."""
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
