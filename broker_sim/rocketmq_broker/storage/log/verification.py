"""Compares acknowledged log with its checksums, at the start and while serving.

If they differ, the error names the damaged record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from rocketmq_arrow.decode.boundaries import record_bounds
from rocketmq_arrow.decode.layout import CRC_AT, CRC_MASK, PHYSICAL_OFFSET_AT, read_layout
from rocketmq_broker.storage.disk.files import crc32
from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.log.commit_log import CommitLog, log_damage
from rocketmq_broker.storage.log.durability import LogChecksum, Mark
from rocketmq_broker.storage.log.scan import are_sound, split_filler
from rocketmq_broker.storage.queues.consume_queue import Entries
from rocketmq_wire.errors import CorruptRecordError


class UnverifiedLog:
    """Acknowledged log that the start did not compare: compared by ranges, while serving.

    A start that read all of a large log would take minutes. Damaged ranges are not served any more.
    The worker thread that also deletes files of the log calls `verify_step`.
    """

    def __init__(self, log: CommitLog, checksums: Iterable[LogChecksum]) -> None:
        self._log = log
        # Newest first: clients read the newest log most.
        self._waiting = deque(sorted(checksums, key=lambda each: each.start, reverse=True))
        self._damaged: tuple[tuple[LogChecksum, DamagedStoreError], ...] = ()

    def verify_step(self) -> int:
        """Compare one more range; returns its size, 0 once all are compared.

        Raises DamagedStoreError: from now on reads of this range raise it, too.
        """
        while self._waiting:
            checksum = self._waiting.popleft()
            if checksum.start < self._log.start:
                continue  # The range has expired.
            found = self._log.crc(checksum.start, checksum.end)
            if found != checksum.crc:
                error = damage_in(self._log, checksum, found)
                self._damaged = (*self._damaged, (checksum, error))
                raise error
            return checksum.end - checksum.start
        return 0

    def intact(self, entries: Entries) -> Entries:
        """The entries before the first one whose record is in a damaged range.

        Raises DamagedStoreError if that is the first entry.
        """
        for checksum, error in self._damaged:
            positions = entries["position"]
            found = np.flatnonzero((positions >= checksum.start) & (positions < checksum.end))
            if len(found):
                if found[0] == 0:
                    raise DamagedStoreError(*error.args)
                entries = entries[: int(found[0])]
        return entries

    def require(self, position: int) -> None:
        """Raise DamagedStoreError if a log position is in a damaged range."""
        for checksum, error in self._damaged:
            if checksum.start <= position < checksum.end:
                raise DamagedStoreError(*error.args)


def verify(log: CommitLog, mark: Mark, checksums: Sequence[LogChecksum], *, start: int) -> int:
    """Compare every range that ends behind `start` with its checksum; returns the bytes compared.

    Raises DamagedStoreError: the log is not what was acknowledged.
    """
    compared = [each for each in checksums if each.end > start and each.start >= log.start]
    if mark.end > mark.anchor:
        compared.append(LogChecksum(mark.anchor, mark.end, mark.checksum))
    for checksum in compared:
        found = log.crc(checksum.start, checksum.end)
        if found != checksum.crc:
            raise damage_in(log, checksum, found)
    return sum(each.end - each.start for each in compared)


def damage_in(log: CommitLog, checksum: LogChecksum, found: int) -> DamagedStoreError:
    """The error for a range whose checksum differs; it names the damaged record if it can."""
    size, expected, at = log.segment_size, checksum.crc, checksum.start
    begin, end = at % size, at % size + checksum.end - at
    data = log.segment_of(at).bytes[begin:end]
    reason = f"the log up to byte {end} is not what was written"
    try:
        starts, sizes = record_bounds(split_filler(data))
    except CorruptRecordError as error:
        return log_damage(at + error.position, size, error.reason, expected, found)
    layout, damaged = read_layout(data, starts, sizes, None)
    wrong = np.flatnonzero(~are_sound(layout, at))
    if len(damaged):
        at, reason = at + int(starts[damaged[0]]), "the record's sizes do not add up"
    elif len(wrong):
        row = int(wrong[0])
        at += int(layout.starts[row])
        written = int(layout.int64(PHYSICAL_OFFSET_AT)[row])
        if written != at:
            reason = f"the record has log position {written}"
        else:
            reason = "the record's body does not have its checksum"
            expected = int(layout.int32(CRC_AT)[row]) & CRC_MASK
            found = crc32(data[layout.body_start[row] : layout.body_end[row]].data, 0) & CRC_MASK
    return log_damage(at, size, reason, expected, found)
