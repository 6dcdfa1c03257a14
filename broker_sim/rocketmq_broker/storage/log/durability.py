"""Makes the log durable: fdatasync, then the checksum of the new bytes, then the mark.

The mark's checksum covers `[anchor, end)`. When this range is long enough, or its file of the log
is full, the checksum moves to the log checksums, and a new one begins. So all acknowledged bytes of
the log have a checksum.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from rocketmq_broker.storage.disk.checksum import crc32
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.log.commit_log import CommitLog
from rocketmq_broker.storage.log.durable_mark import Mark, MarkFile
from rocketmq_broker.storage.log.log_checksums import LogChecksum, LogChecksumFile


class Durability:
    """Owns the mark and the log checksums; the log is durable up to `end`."""

    def __init__(
        self,
        log: CommitLog,
        mark_file: MarkFile,
        checksum_file: LogChecksumFile,
        checksum_range_size: int,
    ) -> None:
        mark = mark_file.mark
        assert mark is not None
        self._log = log
        self._mark_file = mark_file
        self._checksum_file = checksum_file
        self._seal_size = checksum_range_size
        self._mark: Mark = mark
        self._lock = threading.Lock()
        self._failure: StorageError | None = None

    @property
    def end(self) -> int:
        return self._mark.end

    def sync(self) -> int:
        """Make everything appended so far durable; returns the durable end.

        Raises:
            StorageError: for good. After a failed fsync the content of the disk is unknown, and
                the next fsync would wrongly succeed. So nothing is acknowledged until a restart.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            end = self._log.end
            if end > self._mark.end:
                try:
                    self._advance(end)
                except StorageError as error:
                    self._failure = error
                    raise
            return self._mark.end

    def move_log_start(self, log_start: int) -> None:
        """Return once the mark on the disk has this start; then older files may be removed."""
        with self._lock:
            mark = replace(self._mark, log_start=log_start)
            self._mark_file.write(mark)
            self._mark = mark

    def repeat_mark(self) -> None:
        """Write the mark into the other slot, too: a closed store then survives a damaged slot."""
        with self._lock:
            self._mark_file.write(self._mark)

    def close(self) -> None:
        self._mark_file.close()
        self._checksum_file.close()

    def _advance(self, end: int) -> None:
        mark = self._mark
        self._log.sync(mark.end, end)
        position, anchor, checksum = mark.end, mark.anchor, mark.checksum
        while position < end:
            segment_end = position - position % self._log.segment_size + self._log.segment_size
            piece_end = min(end, segment_end)
            checksum = crc32(self._log.view(position, piece_end - position), checksum)
            position = piece_end
            if position == segment_end or position - anchor >= self._seal_size:
                self._checksum_file.append(LogChecksum(anchor, position, checksum))
                anchor, checksum = position, 0
        mark = replace(mark, end=end, anchor=anchor, checksum=checksum)
        self._mark_file.write(mark)
        self._mark = mark
