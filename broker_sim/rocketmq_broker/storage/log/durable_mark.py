"""The durable mark: how far acknowledged data reaches, and the checksum of its newest bytes.

A small file with two slots on separate pages, written in turn. A torn write damages only the slot
being written, and its data was never acknowledged.

    magic "RQMK"  u16 version  u16 zero  u64 sequence
    u64 end           everything before this log position is acknowledged or may be
    u64 log_start     everything before this log position was deleted on purpose
    u64 anchor        where the checksum begins; log checksums cover older data
    u32 checksum      CRC-32 of the log bytes [anchor, end)
    u32 queue_file_entries   u64 segment_size    u32 CRC-32 of all of the above
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketmq_broker.storage.disk.checksum import crc32
from rocketmq_broker.storage.disk.files import Files, read_file, write_file

MARK_NAME: Final = "durable.mark"
_MAGIC: Final = b"RQMK"
_VERSION: Final = 1
_FIELDS: Final = struct.Struct(">4sHHQQQQIIQ")
_CHECKSUM: Final = struct.Struct(">I")
_SLOT_SIZE: Final = _FIELDS.size + _CHECKSUM.size
_SLOT_DISTANCE: Final = 4096
_SLOT_COUNT: Final = 2


@dataclass(frozen=True, slots=True)
class Mark:
    """One state of the durable mark."""

    end: int
    log_start: int
    anchor: int
    checksum: int
    segment_size: int
    queue_file_entries: int


class _Slot(NamedTuple):
    sequence: int
    mark: Mark


class MarkFile:
    """The mark's file. Several threads may write; writes follow one another."""

    def __init__(self, files: Files, *, create: bool = False) -> None:
        self._file = files.open(MARK_NAME, create=create)
        self._lock = threading.Lock()
        if self._file.size() < _SLOT_COUNT * _SLOT_DISTANCE:
            self._file.resize(_SLOT_COUNT * _SLOT_DISTANCE)
        newest = _newest(self._file.pread(_SLOT_COUNT * _SLOT_DISTANCE, 0))
        self._sequence = newest.sequence if newest is not None else 0
        self.mark = newest.mark if newest is not None else None
        """The newest whole slot; None if there is none."""

    def write(self, mark: Mark) -> None:
        """Return once the mark is on the disk."""
        with self._lock:
            sequence = self._sequence + 1
            slot = _encode(mark, sequence)
            self._file.pwrite(slot, sequence % _SLOT_COUNT * _SLOT_DISTANCE)
            self._file.sync()
            self._sequence, self.mark = sequence, mark

    def close(self) -> None:
        self._file.close()


def read_mark(files: Files) -> Mark | None:
    """The newest whole slot, or None; changes nothing in the file."""
    newest = _newest(read_file(files, MARK_NAME) or b"")
    return newest.mark if newest is not None else None


def _newest(data: bytes) -> _Slot | None:
    """The whole slot with the highest sequence in the file's bytes."""
    slots = [_decode(data[index * _SLOT_DISTANCE :]) for index in range(_SLOT_COUNT)]
    whole = [slot for slot in slots if slot is not None]
    return max(whole, key=lambda slot: slot.sequence, default=None)


def _decode(slot: bytes) -> _Slot | None:
    if len(slot) < _SLOT_SIZE:
        return None
    fields = slot[: _FIELDS.size]
    (checksum,) = _CHECKSUM.unpack_from(slot, _FIELDS.size)
    magic, version, _, sequence, end, log_start, anchor, log_checksum, entries, segment_size = (
        _FIELDS.unpack(fields)
    )
    if magic != _MAGIC or version != _VERSION or checksum != crc32(fields, 0):
        return None
    mark = Mark(
        end=end,
        log_start=log_start,
        anchor=anchor,
        checksum=log_checksum,
        segment_size=segment_size,
        queue_file_entries=entries,
    )
    return _Slot(sequence, mark)


def write_first_mark(files: Files, mark: Mark) -> None:
    """Replace the mark's file by one with only this mark, in one step."""
    slot = _encode(mark, 0)
    write_file(files, MARK_NAME, slot.ljust(_SLOT_COUNT * _SLOT_DISTANCE, b"\x00"))


def _encode(mark: Mark, sequence: int) -> bytes:
    fields = _FIELDS.pack(
        _MAGIC,
        _VERSION,
        0,
        sequence,
        mark.end,
        mark.log_start,
        mark.anchor,
        mark.checksum,
        mark.queue_file_entries,
        mark.segment_size,
    )
    return fields + _CHECKSUM.pack(crc32(fields, 0))
