"""Protobuf messages with large bytes fields <-> bytes, without copying those fields needlessly.

The messages of the bulk service have their large fields at numbers 14 and 15, after all others:

    small fields (1 to 13)      written and read by the protobuf library
    0x72 varint(size) sizes     field 14, length-delimited
    0x7A varint(size) bytes     field 15, length-delimited

The protobuf library copies a bytes field when it is set, when it is serialised and when it is read.
This module copies the parts once when it writes, and returns memoryviews when it reads. The reader
accepts fields in any order, as protobuf requires; the last of a repeated field wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.model import Buffer, buffer_size

SIZES_FIELD: Final = 14
BODY_FIELD: Final = 15

_VARINT, _FIXED_64, _LENGTH_DELIMITED, _FIXED_32 = 0, 1, 2, 5
# A varint holds 64 bits, 7 in a byte.
_VARINT_SIZE_MAX: Final = 10


def join_fields(small_fields: bytes, large_fields: Mapping[int, Sequence[Buffer]]) -> bytes:
    """One message of its serialised small fields and of large ones, each copied once."""
    parts: list[Buffer] = [small_fields]
    for number, field in large_fields.items():
        size = sum(buffer_size(part) for part in field)
        if size:
            parts.append(_varint(number << 3 | _LENGTH_DELIMITED) + _varint(size))
            parts.extend(field)
    return b"".join(parts)


def split_fields(message: Buffer) -> tuple[bytes, dict[int, memoryview]]:
    """The serialised small fields of a message, and views of its large ones.

    Raises RemoteProtocolError for bytes that are no protobuf message.
    """
    view = memoryview(message).cast("B")
    small: list[memoryview] = []
    large: dict[int, memoryview] = {}
    position = 0
    while position < len(view):
        start = position
        key, position = _read_varint(view, position)
        number, kind = key >> 3, key & 7
        if kind == _LENGTH_DELIMITED:
            size, position = _read_varint(view, position)
            content, position = position, position + size
        elif kind == _VARINT:
            _, position = _read_varint(view, position)
        elif kind in (_FIXED_64, _FIXED_32):
            position += 8 if kind == _FIXED_64 else 4
        else:
            raise RemoteProtocolError(f"wire type {kind} at byte {start} of a protobuf message")
        if position > len(view):
            raise RemoteProtocolError(
                f"field {number} at byte {start} ends at byte {position} of {len(view)}"
            )
        if kind == _LENGTH_DELIMITED and number in (SIZES_FIELD, BODY_FIELD):
            large[number] = view[content:position]
        else:
            small.append(view[start:position])
    return b"".join(small), large


def _varint(value: int) -> bytes:
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    content.append(value)
    return bytes(content)


def _read_varint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_SIZE_MAX):
        if position + index >= len(view):
            raise RemoteProtocolError(f"a varint is cut off at byte {len(view)}")
        byte = view[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise RemoteProtocolError(f"a varint at byte {position} has no end")
