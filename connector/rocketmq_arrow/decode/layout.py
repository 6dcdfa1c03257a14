"""Views the records of one chunk as columns of fields and positions; finds the damaged ones.

A record begins with 88 bytes of fixed layout (IPv4 hosts), big-endian:

     0 size i32      4 magic u32      8 body CRC i32     12 queue i32     16 flag i32
    20 queue offset i64              28 physical offset i64               36 sysFlag i32
    40 born ms i64   48 born host 4 + i32 port
    56 store ms i64  64 store host 4 + i32 port
    72 reconsume times i32           76 prepared transaction offset i64   84 body size i32
    88 body, then the topic (size i8, in V2 records i16) and the properties (size i16)

These 88 bytes of all records are gathered into one matrix: 6 ns a record, and 1.5 for each field
read from it, where a field gathered from the chunk itself costs 7. An IPv6 host takes 12 bytes
more; such rows of the matrix are moved into the IPv4 layout: all that follows sees one layout.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.decode.boundaries import MAGIC_V1, MAGIC_V2
from rocketmq_arrow.kernels.gather import (
    Bytes,
    Mask,
    Positions,
    differing_rows,
    equals_at,
    numbers_at,
    overlapping,
    pieces_at,
)
from rocketmq_wire.records.record import (
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    HOST_V6_EXTRA,
    RECORD_SIZE_MIN,
)

CRC_MASK: Final = 0x7FFFFFFF

HEADER_SIZE: Final = 88
CRC_AT: Final = 8
QUEUE_AT: Final = 12
FLAG_AT: Final = 16
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_MS_AT: Final = 40
BORN_HOST_AT: Final = 48
STORE_MS_AT: Final = 56
STORE_HOST_AT: Final = 64
RECONSUME_TIMES_AT: Final = 72
PREPARED_OFFSET_AT: Final = 76
BODY_SIZE_AT: Final = 84
_MAGIC_AT: Final = 4
# Of V1 records; the size is a signed byte.
_TOPIC_SIZE_MAX: Final = 127


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows of one chunk: positions are relative to `data`, `header` is in the IPv4 layout."""

    data: Bytes
    starts: Positions
    sizes: Positions
    header: NDArray[np.uint8]
    body_start: Positions
    body_end: Positions
    """Where the topic's size begins."""
    text_start: Positions
    """Where the properties begin."""
    text_end: Positions

    def __len__(self) -> int:
        return len(self.starts)

    def field(self, dtype: str, at: int) -> NDArray[Any]:
        """One field of every row, big-endian as stored; `astype` makes it native."""
        return _column(self.header, dtype, at)

    def int32(self, at: int) -> NDArray[np.int32]:
        return self.field(">i4", at).astype(np.int32)

    def int64(self, at: int) -> NDArray[np.int64]:
        return self.field(">i8", at).astype(np.int64)

    def rows(self, rows: slice | Positions | Mask) -> Layout:
        return Layout(
            self.data,
            self.starts[rows],
            self.sizes[rows],
            np.ascontiguousarray(self.header[rows]),
            self.body_start[rows],
            self.body_end[rows],
            self.text_start[rows],
            self.text_end[rows],
        )


def read_layout(
    data: Bytes, starts: Positions, sizes: Positions, topic: bytes | None
) -> tuple[Layout, Positions]:
    """The layout of the sound records, and the indices of the structurally damaged ones.

    A record is sound when its magic is known, its inner sizes add up exactly to its own size, and
    its topic is the expected one (any, when `topic` is None).
    """
    header = pieces_at(data, starts, HEADER_SIZE)
    is_sound, shift, is_v2 = _first_checks(header, sizes)
    if not is_sound.all():
        return _without(data, starts, sizes, topic, is_sound)
    if np.any(shift):
        _move_to_ipv4_layout(data, starts, header, _flags(header))
    body_size = _column(header, ">i4", BODY_SIZE_AT).astype(np.int64)
    fixed_size: Any = RECORD_SIZE_MIN + shift + is_v2
    is_sound = (body_size >= 0) & (body_size <= sizes - fixed_size - len(topic or b""))
    if not is_sound.all():
        return _without(data, starts, sizes, topic, is_sound)
    body_start = starts + (HEADER_SIZE + shift)
    topic_start = body_start + body_size
    ends = starts + sizes
    if topic is not None and len(topic) <= _TOPIC_SIZE_MAX and isinstance(is_v2, int):
        text_start, is_sound = _text_starts(data, topic_start, topic, ends)
    else:
        topic_end, is_sound = _topic_ends(data, topic_start, topic, is_v2, ends)
        if not is_sound.all():
            return _without(data, starts, sizes, topic, is_sound)
        text_start = topic_end + 2
        is_sound = text_start + numbers_at(data, topic_end, ">i2") == ends
    if not is_sound.all():
        return _without(data, starts, sizes, topic, is_sound)
    layout = Layout(data, starts, sizes, header, body_start, topic_start, text_start, ends)
    return layout, np.empty(0, np.int64)


def unread_layout(data: Bytes, starts: Positions, sizes: Positions) -> Layout:
    """Rows for damaged records: the body is the whole record, there are no properties."""
    ends = starts + sizes
    header = pieces_at(data, starts, HEADER_SIZE)
    return Layout(data, starts, sizes, header, starts, ends, ends, ends)


def describe_damage(data: Bytes, start: int, size: int, topic: bytes | None) -> str:
    """Why the record is not sound, in words; for the one record that an error is about."""
    record = data[start : start + size].tobytes()
    magic, sys_flag = struct.unpack_from(">I", record, _MAGIC_AT)[0], record[SYS_FLAG_AT + 3]
    if magic not in (MAGIC_V1, MAGIC_V2):
        return f"unknown magic 0x{magic:08X}"
    is_v2 = magic == MAGIC_V2
    v6_count = bool(sys_flag & FLAG_BORN_HOST_V6) + bool(sys_flag & FLAG_STORE_HOST_V6)
    shift = HOST_V6_EXTRA * v6_count
    room = size - RECORD_SIZE_MIN - shift - is_v2
    if room < 0:
        return f"a record of {size} bytes cannot hold its fixed fields"
    (body_size,) = struct.unpack_from(">i", record, BODY_SIZE_AT + shift)
    if not 0 <= body_size <= room:
        return f"body size {body_size} does not fit in a record of {size} bytes"
    topic_start = HEADER_SIZE + shift + body_size
    (topic_size,) = struct.unpack_from(">h" if is_v2 else ">b", record, topic_start)
    topic_start += 1 + is_v2
    if topic_size < 0 or topic_start + topic_size + 2 > size:
        return f"topic size {topic_size} does not fit in a record of {size} bytes"
    found = record[topic_start : topic_start + topic_size]
    if topic is not None and found != topic:
        return f"the record is of topic {found.decode('utf-8', 'replace')!r}"
    (text_size,) = struct.unpack_from(">h", record, topic_start + topic_size)
    rest = size - topic_start - topic_size - 2
    return f"properties of {text_size} bytes announced, {rest} are there"


def _column(header: NDArray[np.uint8], dtype: str, at: int) -> NDArray[Any]:
    size = np.dtype(dtype).itemsize
    column: NDArray[Any] = header[:, at : at + size].view(dtype)[:, 0]
    return column


def _flags(header: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The low byte of sysFlag, where the host bits are."""
    return header[:, SYS_FLAG_AT + 3]


def _first_checks(
    header: NDArray[np.uint8], sizes: Positions
) -> tuple[Mask, Positions | int, Positions | int]:
    """Known magic and room for the fixed fields; bytes that IPv6 hosts and V2 topics take more."""
    magic = _column(header, ">u4", _MAGIC_AT)
    is_v1 = magic == MAGIC_V1
    is_v2: Positions | int = 0
    is_sound = is_v1
    if not is_v1.all():
        is_sound = is_v1 | (magic == MAGIC_V2)
        is_v2 = (~is_v1).astype(np.int64)
    flags = _flags(header)
    shift: Positions | int = 0
    if (flags & (FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6)).any():
        hosts = ((flags & FLAG_BORN_HOST_V6) != 0).astype(np.int64)
        hosts += (flags & FLAG_STORE_HOST_V6) != 0
        shift = hosts * HOST_V6_EXTRA
        is_sound = is_sound & (sizes >= RECORD_SIZE_MIN + shift)
    return is_sound, shift, is_v2


def _without(
    data: Bytes, starts: Positions, sizes: Positions, topic: bytes | None, is_sound: Mask
) -> tuple[Layout, Positions]:
    """Reads the sound ones again, alone: damage is rare, the common way stays free of masks."""
    kept = np.flatnonzero(is_sound)
    layout, damaged = read_layout(data, starts[kept], sizes[kept], topic)
    return layout, np.sort(np.concatenate([np.flatnonzero(~is_sound), kept[damaged]]))


def _move_to_ipv4_layout(
    data: Bytes, starts: Positions, header: NDArray[np.uint8], flags: NDArray[np.uint8]
) -> None:
    """Cuts IPv6 hosts to 8 bytes in the matrix; columns of hosts read them from `data`."""
    rows = np.flatnonzero(flags & (FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6))
    born = HOST_V6_EXTRA * ((flags[rows] & FLAG_BORN_HOST_V6) != 0).astype(np.int64)
    both = born + HOST_V6_EXTRA * ((flags[rows] & FLAG_STORE_HOST_V6) != 0)
    middle = overlapping(data, "V16")[starts[rows] + STORE_MS_AT + born]
    header[rows, STORE_MS_AT:RECONSUME_TIMES_AT] = middle.view(np.uint8).reshape(-1, 16)
    last = overlapping(data, "V16")[starts[rows] + RECONSUME_TIMES_AT + both]
    header[rows, RECONSUME_TIMES_AT:HEADER_SIZE] = last.view(np.uint8).reshape(-1, 16)


def _topic_ends(
    data: Bytes,
    topic_start: Positions,
    topic: bytes | None,
    is_v2: Positions | int,
    ends: Positions,
) -> tuple[Positions, Mask]:
    """Where the topic ends, and whether it is as expected."""
    if topic is None:
        sizes = data[topic_start].view(np.int8).astype(np.int64)
        if not isinstance(is_v2, int):
            rows = np.flatnonzero(is_v2)
            sizes[rows] = numbers_at(data, topic_start[rows], ">i2")
        topic_end = topic_start + 1 + is_v2 + sizes
        return topic_end, (sizes >= 0) & (topic_end + 2 <= ends)
    topic_end = topic_start + 1 + is_v2 + len(topic)
    if isinstance(is_v2, int):
        return topic_end, _is_topic(data, topic_start, topic, ">b")
    is_topic = np.empty(len(topic_start), np.bool_)
    for code, mask in ((">b", is_v2 == 0), (">h", is_v2 == 1)):
        rows = np.flatnonzero(mask)
        is_topic[rows] = _is_topic(data, topic_start[rows], topic, code)
    return topic_end, is_topic


def _text_starts(
    data: Bytes, topic_start: Positions, topic: bytes, ends: Positions
) -> tuple[Positions, Mask]:
    """Where the properties begin, and whether the topic is as expected and they reach the end.

    The topic and the size of the properties are gathered together.
    """
    field = struct.pack(">b", len(topic)) + topic
    size = len(field) + 2
    text_start = topic_start + size
    found = pieces_at(data, topic_start, size)
    is_sound: Mask = text_start + _column(found, ">i2", len(field)) == ends
    others = differing_rows(found.ravel(), field + b"\0\0", b"\xff" * len(field) + b"\0\0")
    is_sound[others] = False
    return text_start, is_sound


def _is_topic(data: Bytes, topic_start: Positions, topic: bytes, size_code: str) -> Mask:
    if size_code == ">b" and len(topic) > _TOPIC_SIZE_MAX:
        return np.zeros(len(topic_start), np.bool_)
    return equals_at(data, topic_start, struct.pack(size_code, len(topic)) + topic)
