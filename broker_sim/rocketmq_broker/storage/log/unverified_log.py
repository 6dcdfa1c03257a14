"""The acknowledged log that a start did not compare with its checksums: compared later, once.

A start that read all of a large log would take minutes. So stretches that no start has to read are
compared one by one while the broker serves; what is damaged is not served any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.log.commit_log import CommitLog
from rocketmq_broker.storage.log.log_checksums import LogChecksum
from rocketmq_broker.storage.log.verification import checksum_of, damage_in
from rocketmq_broker.storage.queues.consume_queue import Entries


class UnverifiedLog:
    """Compares stretches on the worker thread that removes files of the log, too."""

    def __init__(self, log: CommitLog, seals: Iterable[LogChecksum]) -> None:
        self._log = log
        # The newest first: those are read the most.
        self._waiting = deque(sorted(seals, key=lambda seal: seal.start, reverse=True))
        self._damaged: tuple[tuple[LogChecksum, DamagedStoreError], ...] = ()

    def verify_step(self) -> int:
        """Compare one more stretch; returns its size, 0 once there is none left.

        Raises DamagedStoreError: from now on reads of this stretch raise it, too.
        """
        while self._waiting:
            seal = self._waiting.popleft()
            if seal.start < self._log.start:
                continue  # It has expired.
            found = checksum_of(self._log, seal)
            if found != seal.checksum:
                error = damage_in(self._log, seal, found)
                self._damaged = (*self._damaged, (seal, error))
                raise error
            return seal.end - seal.start
        return 0

    def intact(self, entries: Entries) -> Entries:
        """Consume-queue entries up to the first whose record is in a damaged stretch.

        Raises DamagedStoreError: the very first one's is.
        """
        for seal, error in self._damaged:
            positions = entries["position"]
            found = np.flatnonzero((positions >= seal.start) & (positions < seal.end))
            if len(found):
                if found[0] == 0:
                    raise DamagedStoreError(*error.args)
                entries = entries[: int(found[0])]
        return entries

    def require(self, position: int) -> None:
        """Raises DamagedStoreError if a log position is in a stretch that is damaged."""
        for seal, error in self._damaged:
            if seal.start <= position < seal.end:
                raise DamagedStoreError(*error.args)
