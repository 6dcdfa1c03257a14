"""Compares acknowledged log with its checksums, and finds the damaged record when they differ."""

from __future__ import annotations

from collections.abc import Sequence

from rocketmq_arrow.decode.boundaries import record_bounds
from rocketmq_arrow.decode.layout import CRC_AT, CRC_MASK, PHYSICAL_OFFSET_AT, read_layout
from rocketmq_broker.storage.disk.checksum import crc32
from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.log.commit_log import CommitLog
from rocketmq_broker.storage.log.durable_mark import Mark
from rocketmq_broker.storage.log.log_checksums import LogChecksum
from rocketmq_broker.storage.log.scan import Bytes, split_filler
from rocketmq_broker.storage.log.segment import segment_name
from rocketmq_wire.errors import CorruptRecordError


def verify(log: CommitLog, mark: Mark, seals: Sequence[LogChecksum], *, start: int) -> int:
    """Check every checksum that covers something from `start` on; returns the bytes compared.

    Raises DamagedStoreError: the log is not what was acknowledged.
    """
    damaged_ranges = [seal for seal in seals if seal.end > start and seal.start >= log.start]
    if mark.end > mark.anchor:
        damaged_ranges.append(LogChecksum(mark.anchor, mark.end, mark.checksum))
    for stretch in damaged_ranges:
        found = checksum_of(log, stretch)
        if found != stretch.checksum:
            raise damage_in(log, stretch, found)
    return sum(stretch.end - stretch.start for stretch in damaged_ranges)


def checksum_of(log: CommitLog, stretch: LogChecksum) -> int:
    """The checksum that a stretch of the log has now."""
    found = 0
    position = stretch.start
    while position < stretch.end:
        # A checksum may go on behind the end of a file, where the file ended with the mark.
        left = log.segment_size - position % log.segment_size
        size = min(left, stretch.end - position)
        found = crc32(log.view(position, size), found)
        position += size
    return found


def damage_in(log: CommitLog, stretch: LogChecksum, found: int) -> DamagedStoreError:
    """What is wrong in a stretch whose checksum differs: a record if one can be named."""
    segment_start = stretch.start - stretch.start % log.segment_size
    name = segment_name(segment_start)
    data = log.bytes_at(stretch.start)[stretch.start - segment_start :]
    data = data[: stretch.end - stretch.start]
    reason = f"the log up to byte {stretch.end - segment_start} is not what was written"
    position, expected = stretch.start, stretch.checksum
    named = _damaged_record(data, stretch.start)
    if named is not None:
        position, reason, expected, found = *named[:2], named[2] or expected, named[3] or found
    return DamagedStoreError(name, position - segment_start, reason, expected, found)


def _damaged_record(data: Bytes, base: int) -> tuple[int, str, int, int] | None:
    """Position, reason, expected and found checksum of the first record that looks wrong."""
    try:
        starts, sizes = record_bounds(split_filler(data))
    except CorruptRecordError as error:
        return base + error.position, error.reason, 0, 0
    layout, damaged = read_layout(data, starts, sizes, None)
    if len(damaged):
        return base + int(starts[damaged[0]]), "the record's sizes do not add up", 0, 0
    positions = layout.int64(PHYSICAL_OFFSET_AT)
    checksums = layout.int32(CRC_AT) & CRC_MASK
    view = data.data
    for row, start in enumerate(layout.starts.tolist()):
        if positions[row] != base + start:
            reason = f"the record says it is at log position {positions[row]}"
            return base + start, reason, 0, 0
        body = view[int(layout.body_start[row]) : int(layout.body_end[row])]
        checksum = crc32(body, 0) & CRC_MASK
        if checksum != checksums[row]:
            reason = "the record's body does not have its checksum"
            return base + start, reason, int(checksums[row]), checksum
    return None
