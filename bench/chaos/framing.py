"""The bytes of a connection -> units that name the call they belong to, for both protocols.

TCP    a unit is a remoting frame; its call is the frame's opaque number
gRPC   a unit is an HTTP/2 frame; its call is the stream, whose first headers hold the path
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from rocketmq_wire.codes import RequestCode
from rocketmq_wire.remoting.headers import HeaderCodec, decode_header

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEAD_SIZE: Final = 9
_DATA, _HEADERS = 0, 1
_END_STREAM, _PADDED, _PRIORITY = 0x1, 0x8, 0x20
# RFC 7541, appendix A: the names alone, for the sizes of entries count.
_STATIC_NAMES: Final = b"""
:authority :method :method :path :path :scheme :scheme :status :status :status :status :status
:status :status accept-charset accept-encoding accept-language accept-ranges accept
access-control-allow-origin age allow authorization cache-control content-disposition
content-encoding content-language content-length content-location content-range content-type cookie
date etag expect expires from host if-match if-modified-since if-none-match if-range
if-unmodified-since last-modified link location max-forwards proxy-authenticate proxy-authorization
range referer refresh retry-after server set-cookie strict-transport-security transfer-encoding
user-agent vary via www-authenticate
""".split()
_ENTRY_OVERHEAD: Final = 32
_TABLE_SIZE: Final = 4096


@dataclass(frozen=True, slots=True)
class Unit:
    """Bytes that belong together. `call` is None if they are no request and no answer."""

    data: bytes
    call: int | None = None
    name: str = ""
    """What a request asks for; empty in an answer."""
    head_size: int = 0
    """The bytes in front of what the peer made, which garbage leaves alone."""


class Framing(Protocol):
    """One direction of one connection."""

    def __init__(self, *, is_answer: bool) -> None: ...

    def feed(self, data: bytes) -> Iterator[Unit]:
        """Return the units that are complete with these bytes."""


class RemotingFraming:
    """RocketMQ's own protocol, in either direction."""

    def __init__(self, *, is_answer: bool) -> None:
        del is_answer  # A frame itself says which it is.
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Unit]:
        self._rest += data
        while len(self._rest) >= 4:
            end = 4 + int.from_bytes(self._rest[:4], "big")
            if len(self._rest) < end:
                return
            frame = bytes(self._rest[:end])
            del self._rest[:end]
            header_end = 8 + int.from_bytes(frame[5:8], "big")
            header = decode_header(frame[8:header_end], HeaderCodec(frame[4]))
            # A broker asks its clients, too, and each side has numbers of its own.
            if header.is_reply:
                yield Unit(frame, header.opaque, head_size=4)
            else:
                yield Unit(frame, header.opaque, RequestCode(header.code).name, head_size=4)


class Http2Framing:
    """gRPC over HTTP/2 in plain text. Only the client's side names calls."""

    def __init__(self, *, is_answer: bool) -> None:
        self._is_answer = is_answer
        self._rest = bytearray()
        self._preface = b"" if is_answer else _PREFACE
        self._paths = PathTable()
        self._names: dict[int, str] = {}

    def feed(self, data: bytes) -> Iterator[Unit]:
        self._rest += data
        if self._preface:
            if len(self._rest) < len(_PREFACE):
                return
            del self._rest[: len(_PREFACE)]
            yield Unit(self._preface)
            self._preface = b""
        while len(self._rest) >= _FRAME_HEAD_SIZE:
            end = _FRAME_HEAD_SIZE + int.from_bytes(self._rest[:3], "big")
            if len(self._rest) < end:
                return
            frame = bytes(self._rest[:end])
            del self._rest[:end]
            yield self._unit(frame)

    def _unit(self, frame: bytes) -> Unit:
        kind, flags, stream = frame[3], frame[4], int.from_bytes(frame[5:9], "big")
        if self._is_answer:
            is_said = kind == _DATA or (kind == _HEADERS and flags & _END_STREAM)
            return Unit(frame, stream if is_said else None, head_size=_FRAME_HEAD_SIZE)
        if kind == _HEADERS:
            start = _FRAME_HEAD_SIZE + bool(flags & _PADDED) + 5 * bool(flags & _PRIORITY)
            path = self._paths.path_in(frame[start:])
            if path:
                self._names[stream] = path.decode().rpartition("/")[2]
        # A request of no bytes of its own has a message, too; the end of a stream may have none.
        if kind != _DATA or len(frame) == _FRAME_HEAD_SIZE:
            return Unit(frame)
        return Unit(frame, stream, self._names.get(stream, ""), head_size=_FRAME_HEAD_SIZE)


class PathTable:
    """Finds `:path` in headers compressed by HPACK (RFC 7541), which refer to earlier ones.

    gRPC sends texts as they are: one in Huffman's code counts as an unknown text.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[bytes, bytes]] = []
        self._size_max = _TABLE_SIZE

    def path_in(self, block: bytes) -> bytes | None:
        path, at = None, 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                index, at = _integer(block, at, 7)
                name, value = self._entry(index)
            elif first & 0xE0 == 0x20:
                self._size_max, at = _integer(block, at, 5)
                self._evict()
                continue
            else:
                is_kept = bool(first & 0x40)
                index, at = _integer(block, at, 6 if is_kept else 4)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = _text(block, at)
                value, at = _text(block, at)
                if is_kept:
                    self._entries.insert(0, (name, value))
                    self._evict()
            if name == b":path":
                path = value
        return path

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        if index > len(_STATIC_NAMES):
            return self._entries[index - len(_STATIC_NAMES) - 1]
        return _STATIC_NAMES[index - 1], b""

    def _evict(self) -> None:
        while sum(_ENTRY_OVERHEAD + len(n) + len(v) for n, v in self._entries) > self._size_max:
            self._entries.pop()


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    limit = (1 << bits) - 1
    value, at = block[at] & limit, at + 1
    if value < limit:
        return value, at
    shift = 0
    while True:
        value += (block[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not block[at - 1] & 0x80:
            return value, at


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    is_huffman = block[at] & 0x80
    size, at = _integer(block, at, 7)
    text = block[at : at + size]
    return (b"" if is_huffman else text), at + size
