"""Acknowledged log that a start did not compare with its checksums: compared once, while serving.

A start that read all of a large log would take minutes. So the ranges that no start has to read are
compared one by one while the broker serves. Damaged ranges are not served any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.log.commit_log import CommitLog
from rocketmq_broker.storage.log.log_checksums import LogChecksum
from rocketmq_broker.storage.log.verification import crc_of, damage_in
from rocketmq_broker.storage.queues.consume_queue import Entries


class UnverifiedLog:
    """Compares ranges, on the worker thread that also deletes files of the log."""

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
            found = crc_of(self._log, checksum)
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
