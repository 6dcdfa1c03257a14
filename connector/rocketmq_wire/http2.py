"""HTTP/2 frames <-> bytes, as far as a gRPC client needs them (RFC 9113).

0 SIZE u24: bytes behind the head   3 KIND u8   4 FLAGS u8   5 STREAM u31   9 PAYLOAD
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.model import Buffer

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_SIZE: Final = 9
WINDOW_SIZE_DEFAULT: Final = 65_535
WINDOW_SIZE_MAX: Final = (1 << 31) - 1
FRAME_SIZE_DEFAULT: Final = 16_384
FRAME_SIZE_MAX: Final = (1 << 24) - 1
STREAM_ID_MAX: Final = (1 << 31) - 1

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY: Final = 0x20

_HEAD: Final = struct.Struct(">IBI")
_SETTING: Final = struct.Struct(">HI")
_INTEGER: Final = struct.Struct(">I")
_STREAM_MASK: Final = STREAM_ID_MAX


class Kind(enum.IntEnum):
    """Frame types. Others are to be ignored."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Setting(enum.IntEnum):
    """Names of settings. Others are to be ignored."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(enum.IntEnum):
    """Why a stream or a connection was ended."""

    NO_ERROR = 0
    REFUSED_STREAM = 7
    CANCEL = 8
    ENHANCE_YOUR_CALM = 11


@dataclass(frozen=True, slots=True)
class FrameHead:
    """What stands in front of every frame's payload."""

    size: int
    kind: int
    flags: int
    stream: int


def decode_head(buffer: Buffer, position: int = 0) -> FrameHead:
    """The head at a position where nine bytes are."""
    size_and_kind, flags, stream = _HEAD.unpack_from(buffer, position)
    return FrameHead(size_and_kind >> 8, size_and_kind & 0xFF, flags, stream & _STREAM_MASK)


def encode_head(kind: Kind, flags: int, stream: int, size: int) -> bytes:
    """A frame's head."""
    return _HEAD.pack(size << 8 | kind, flags, stream)


def encode_frame(kind: Kind, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A whole small frame."""
    return encode_head(kind, flags, stream, len(payload)) + payload


def encode_settings(settings: Mapping[Setting, int]) -> bytes:
    """A frame with settings of ours."""
    payload = b"".join(_SETTING.pack(name, value) for name, value in settings.items())
    return encode_frame(Kind.SETTINGS, 0, 0, payload)


def decode_settings(payload: bytes) -> dict[int, int]:
    """The peer's settings; a later value of a name wins. Raises RemoteProtocolError."""
    if len(payload) % _SETTING.size:
        raise RemoteProtocolError(f"settings of {len(payload)} bytes")
    return dict(_SETTING.iter_unpack(payload))


def encode_window_update(stream: int, size: int) -> bytes:
    """Allow the peer to send `size` more bytes."""
    return encode_frame(Kind.WINDOW_UPDATE, 0, stream, _INTEGER.pack(size))


def encode_reset(stream: int, code: ErrorCode) -> bytes:
    """End a stream at once."""
    return encode_frame(Kind.RST_STREAM, 0, stream, _INTEGER.pack(code))


def decode_integer(payload: bytes, position: int = 0) -> int:
    """An unsigned 32-bit integer of a small frame. Raises RemoteProtocolError."""
    if len(payload) < position + _INTEGER.size:
        raise RemoteProtocolError(f"a frame's payload has only {len(payload)} bytes")
    (value,) = _INTEGER.unpack_from(payload, position)
    return int(value)


def unpadded(head: FrameHead, payload: bytes) -> bytes:
    """The payload of a HEADERS frame without padding and priority. Raises RemoteProtocolError."""
    start, end = 0, len(payload)
    if head.flags & PADDED:
        start, end = 1, end - (payload[0] if payload else 0)
    if head.flags & PRIORITY:
        start += 5
    if start > end:
        raise RemoteProtocolError("a frame's padding is longer than the frame")
    return payload[start:end]
