"""A few entries of a batch body -> record bytes, one entry at a time; one record is patched here.

Below some hundred entries numpy's fixed costs are larger than those of a plain loop. What is not
sound is left to the vectorised way, which says what is wrong with it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from rocketmq_arrow.decode.layout import QUEUE_AT, QUEUE_OFFSET_AT, STORE_MS_AT, SYS_FLAG_AT
from rocketmq_wire.hashes import java_hash
from rocketmq_wire.model import Buffer, Host
from rocketmq_wire.records.batch import ENTRY_BODY_AT, ENTRY_BODY_SIZE_AT, ENTRY_SIZE_MIN
from rocketmq_wire.records.properties import NAME_VALUE_SEPARATOR, TAGS, decode_properties
from rocketmq_wire.records.record import (
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    HOST_V6_EXTRA,
    body_crc,
)

SMALL_BODY_SIZE_MAX: Final = 32 * 1024
_ENTRIES_MAX: Final = 96
_ENTRY_HEAD: Final = struct.Struct(">i8xii")
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_OFFSETS: Final = struct.Struct(">qq")
_TAGS_NAME: Final = f"{TAGS}{NAME_VALUE_SEPARATOR}".encode()


@dataclass(slots=True)
class FewRecords:
    """Records back to back, and what is known of each."""

    parts: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    tag_hashes: list[int] = field(default_factory=list)
    text_sizes: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """The number of records of each batch."""


def lay_out_few(
    bodies: Sequence[Buffer], templates: Sequence[bytes], topic_field: bytes
) -> FewRecords | None:
    """The records of small batches; None if all bodies together are not small, or one not sound.

    A template is a record up to and with its body's size: what differs between records is zero.
    """
    if sum(map(len, bodies)) > SMALL_BODY_SIZE_MAX:
        return None
    few = FewRecords()
    for body, template in zip(bodies, templates, strict=True):
        if not _add_few(few, bytes(body), template, topic_field):
            return None
    return few


def _add_few(few: FewRecords, data: bytes, template: bytes, topic_field: bytes) -> bool:
    # Around what is filled in: size, magic, CRC, queue, flag, and all up to the body's size.
    magic, queue, middle = template[4:8], template[12:16], template[20:-4]
    fixed_size = len(template) + len(topic_field)
    parts, sizes, first = few.parts, few.sizes, len(few.sizes)
    position, total = 0, len(data)
    while position < total:
        if total - position < ENTRY_SIZE_MIN or len(sizes) - first == _ENTRIES_MAX:
            return False
        entry_size, flag, body_size = _ENTRY_HEAD.unpack_from(data, position)
        end, body_end = position + entry_size, position + ENTRY_BODY_AT + body_size
        if body_size < 0 or end > total or body_end + 2 > end:
            return False
        (text_size,) = _SHORT.unpack_from(data, body_end)
        if body_end + 2 + text_size != end:
            return False
        size = fixed_size + body_size + 2 + text_size
        crc = body_crc(data[position + ENTRY_BODY_AT : body_end])
        parts += (_INT.pack(size), magic, _INT.pack(crc), queue, _INT.pack(flag), middle)
        # The body with its size, and the properties with theirs, are the same in both layouts.
        parts += (data[position + ENTRY_BODY_SIZE_AT : body_end], topic_field, data[body_end:end])
        sizes.append(size)
        few.text_sizes.append(text_size)
        few.tag_hashes.append(_tag_hash(data[body_end + 2 : end]))
        position = end
    few.counts.append(len(sizes) - first)
    return bool(total)


def _tag_hash(text: bytes) -> int:
    if _TAGS_NAME not in text:
        return 0
    tag = decode_properties(text).get(TAGS)
    return _hash(tag) if tag else 0


@lru_cache(maxsize=1_024)
def _hash(tag: str) -> int:
    return java_hash(tag)


def patch_record(
    data: memoryview, start: int, position: tuple[int, int, int], store_ms: int, store_host: Host
) -> bool:
    """Write into the record at `start` what only its broker knows; False if its host does not fit.

    `position` is the queue, the offset in it, and the log position of the buffer's first byte.
    """
    flags = data[start + SYS_FLAG_AT + 3]
    if (flags & FLAG_STORE_HOST_V6 != 0) != (len(store_host.address) == 16):
        return False
    queue_index, queue_offset, physical_start = position
    _INT.pack_into(data, start + QUEUE_AT, queue_index)
    _OFFSETS.pack_into(data, start + QUEUE_OFFSET_AT, queue_offset, start + physical_start)
    at = start + STORE_MS_AT + (HOST_V6_EXTRA if flags & FLAG_BORN_HOST_V6 else 0)
    stored = _LONG.pack(store_ms) + store_host.address + _INT.pack(store_host.port)
    data[at : at + len(stored)] = stored
    return True
