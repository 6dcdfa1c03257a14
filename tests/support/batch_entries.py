"""Reads the body of a batch entry by entry; products only cut it or count its entries."""

from __future__ import annotations

import struct
from typing import NoReturn

from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import Buffer
from rocketmq_wire.records.batch import ENTRY_SIZE_MIN, BatchEntry

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


def decode_batch(buffer: Buffer) -> list[BatchEntry]:
    """Split a batch body. Raises CorruptRecordError if its lengths do not add up."""
    view = memoryview(buffer)
    entries: list[BatchEntry] = []
    position = 0
    while position < len(view):
        entry, position = _decode_entry(view, position)
        entries.append(entry)
    return entries


def _decode_entry(view: memoryview, position: int) -> tuple[BatchEntry, int]:
    left = len(view) - position

    def refuse(reason: str) -> NoReturn:
        raise CorruptRecordError("batch", position, reason)

    if left < ENTRY_SIZE_MIN:
        refuse(f"{left} bytes are no entry")
    (size, _, _, flag, body_size) = _HEAD.unpack_from(view, position)
    if not ENTRY_SIZE_MIN <= size <= left:
        refuse(f"an entry of {size} bytes does not fit the {left} there")
    if not 0 <= body_size <= size - ENTRY_SIZE_MIN:
        refuse(f"a body of {body_size} bytes does not fit the entry's {size}")
    body_start = position + _HEAD.size
    body_end = body_start + body_size
    (properties_size,) = _SHORT.unpack_from(view, body_end)
    end = position + size
    if properties_size != end - body_end - 2:
        refuse(f"properties of {properties_size} bytes leave the entry's size {size} unmet")
    entry = BatchEntry(flag, bytes(view[body_start:body_end]), bytes(view[body_end + 2 : end]))
    return entry, end
