"""Compares acknowledged log with its checksums, and finds the damaged record if they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rocketmq_arrow.decode.boundaries import record_bounds
from rocketmq_arrow.decode.layout import CRC_AT, CRC_MASK, PHYSICAL_OFFSET_AT, read_layout
from rocketmq_arrow.kernels.gather import Bytes
from rocketmq_broker.storage.disk.checksum import crc32
from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.log.commit_log import CommitLog
from rocketmq_broker.storage.log.durable_mark import Mark
from rocketmq_broker.storage.log.log_checksums import LogChecksum
from rocketmq_broker.storage.log.scan import split_filler
from rocketmq_broker.storage.log.segment import segment_name
from rocketmq_wire.errors import CorruptRecordError


class _DamagedRecord(NamedTuple):
    """The first damaged record of a range."""

    at: int
    """Byte in the range."""
    reason: str
    expected: int = 0
    """Checksum of the record's body, 0 if another part is damaged."""
    found: int = 0


def verify(log: CommitLog, mark: Mark, checksums: Sequence[LogChecksum], *, start: int) -> int:
    """Compare every range that ends behind `start` with its checksum; returns the bytes compared.

    Raises DamagedStoreError: the log is not what was acknowledged.
    """
    compared = [each for each in checksums if each.end > start and each.start >= log.start]
    if mark.end > mark.anchor:
        compared.append(LogChecksum(mark.anchor, mark.end, mark.checksum))
    for checksum in compared:
        found = crc_of(log, checksum)
        if found != checksum.crc:
            raise damage_in(log, checksum, found)
    return sum(each.end - each.start for each in compared)


def crc_of(log: CommitLog, checksum: LogChecksum) -> int:
    """The CRC-32 that a checksum's range of the log has now."""
    found = 0
    position = checksum.start
    while position < checksum.end:
        # A range may span two files if the mark ended with the first one.
        left = log.segment_size - position % log.segment_size
        size = min(left, checksum.end - position)
        found = crc32(log.view(position, size), found)
        position += size
    return found


def damage_in(log: CommitLog, checksum: LogChecksum, found: int) -> DamagedStoreError:
    """The error for a range whose checksum differs; it names the damaged record if it can."""
    segment_start = checksum.start - checksum.start % log.segment_size
    begin, end = checksum.start - segment_start, checksum.end - segment_start
    name = segment_name(segment_start)
    record = _damaged_record(log.bytes_at(checksum.start)[begin:end], checksum.start)
    if record is None:
        reason = f"the log up to byte {end} is not what was written"
        return DamagedStoreError(name, begin, reason, checksum.crc, found)
    return DamagedStoreError(
        name,
        begin + record.at,
        record.reason,
        record.expected or checksum.crc,
        record.found or found,
    )


def _damaged_record(data: Bytes, base: int) -> _DamagedRecord | None:
    try:
        starts, sizes = record_bounds(split_filler(data))
    except CorruptRecordError as error:
        return _DamagedRecord(error.position, error.reason)
    layout, damaged = read_layout(data, starts, sizes, None)
    if len(damaged):
        return _DamagedRecord(int(starts[damaged[0]]), "the record's sizes do not add up")
    positions = layout.int64(PHYSICAL_OFFSET_AT)
    checksums = layout.int32(CRC_AT) & CRC_MASK
    view = data.data
    for row, start in enumerate(layout.starts.tolist()):
        if positions[row] != base + start:
            return _DamagedRecord(start, f"the record has log position {positions[row]}")
        body = view[int(layout.body_start[row]) : int(layout.body_end[row])]
        found = crc32(body, 0) & CRC_MASK
        if found != checksums[row]:
            reason = "the record's body does not have its checksum"
            return _DamagedRecord(start, reason, int(checksums[row]), found)
    return None
