"""Background work of a store: the key index, checkpoints of the derived files, retention.

A worker thread calls it. It changes tables under the store's lock, but waits for the disk without
the lock, so that the loop can append and read meanwhile.
"""

from __future__ import annotations

import logging
import struct
import threading
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final

from rocketmq_arrow.decode.boundaries import record_bounds
from rocketmq_arrow.decode.layout import STORE_MS_AT, SYS_FLAG_AT
from rocketmq_arrow.kernels.gather import Bytes, Positions
from rocketmq_broker.storage.disk.files import Files, join
from rocketmq_broker.storage.errors import MissingFileError, StorageError
from rocketmq_broker.storage.keys.key_index import INDEX_DIRECTORY, key_entries
from rocketmq_broker.storage.log.commit_log import LOG_DIRECTORY, CommitLog
from rocketmq_broker.storage.log.scan import is_filler
from rocketmq_broker.storage.queues.consume_queue import QueueIndex, QueueKey
from rocketmq_broker.storage.queues.derived import Derived, save_derived, save_rocketmq_checkpoint
from rocketmq_broker.storage.recovery.recover import Recovered
from rocketmq_broker.storage.settings import CleanReport, StoreConfig
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import Bounds
from rocketmq_wire.records.record import FLAG_BORN_HOST_V6, HOST_V6_EXTRA

_LOG = logging.getLogger(__name__)
_INDEX_STEP_SIZE: Final = 4 * 1024 * 1024
"""Bytes of log that one step indexes; it takes a few times as much memory."""
_TIME: Final = struct.Struct(">q")


def record_store_ms(log: CommitLog, position: int) -> int:
    """The store time of the record at a log position."""
    head = log.view(position, STORE_MS_AT + HOST_V6_EXTRA + _TIME.size)
    extra = HOST_V6_EXTRA if head[SYS_FLAG_AT + 3] & FLAG_BORN_HOST_V6 else 0
    return int(_TIME.unpack_from(head, STORE_MS_AT + extra)[0])


class Maintenance:
    """Background work on the parts of an open store, whose tables `lock` guards."""

    def __init__(
        self, files: Files, config: StoreConfig, parts: Recovered, lock: threading.RLock
    ) -> None:
        self._files = files
        self._config = config
        self._lock = lock
        self._log = parts.log
        self._queues = parts.queues
        self._durability = parts.durability
        self._index = parts.index
        self.index_position = parts.index_position
        """Log position before which all records are in the key index."""
        self._derived = parts.derived
        self._expired_log: list[str] = []
        self._expired_index: list[str] = []
        self._has_expired = False
        """True while files are still to be removed."""
        # Only one checkpoint or cleaning runs at a time.
        self._work = threading.RLock()

    def index_step(self) -> bool:
        """Index some published records; True if there are more."""
        with self._lock:
            position = max(self.index_position, self._log.start)
            published_end = self._queues.published_end
            segment = self._log.segment_at(position)
            if position >= published_end or segment is None:
                return False
            end = min(segment.end, self._index_step_end(position))
        data = segment.bytes[position - segment.start : end - segment.start]
        data, starts, sizes = _whole_records(data)
        if end < segment.end:
            end = position + len(data)
        entries = key_entries(data, starts, sizes)
        with self._lock:
            self._index.add(entries._replace(positions=entries.positions + position))
            self.index_position = end
        return end < published_end

    def _index_step_end(self, position: int) -> int:
        """The end of a step: the end of a record if one is known."""
        ends, limit = self._queues.record_ends, position + _INDEX_STEP_SIZE
        end = limit
        while ends and ends[0] <= limit:
            end = max(position, ends.popleft())
        if self._queues.published_end <= limit:
            return self._queues.published_end
        return end if end > position else limit

    def checkpoint(self, store_ms: int) -> bool:
        """Bring the derived files to the disk; False if nothing changed, or there is no disk."""
        if self._config.is_memory:
            return False
        with self._work:
            with self._lock:
                queues = list(self._queues)
                derived = Derived(
                    position=self._queues.published_end,
                    store_ms=store_ms,
                    bounds={
                        (queue.topic, queue.index): Bounds(queue.start, queue.end)
                        for queue in queues
                        if queue.end
                    },
                    index_position=self.index_position,
                    index_slots=self._index.slot_count,
                    index_entries=self._index.entry_count,
                    index_files=tuple(self._index.files),
                )
                if derived == replace(self._derived, checksums={}):
                    return False
                dirty = self._queues.open_files.take_dirty()
                directories = self._queues.dirty_directories
                self._queues.dirty_directories = set()
            try:
                if self._durability.end < derived.position:
                    self._durability.sync()
                for name in sorted(dirty):
                    # The topic may be deleted meanwhile.
                    with suppress(MissingFileError), closing(self._files.open(name)) as file:
                        file.sync()
                # Not for safety: without a name a start would rebuild the queues from the log,
                # which takes long.
                changed = {INDEX_DIRECTORY, *directories}
                for directory in sorted(changed.union(name.rpartition("/")[0] for name in dirty)):
                    with suppress(MissingFileError):
                        self._files.sync_directory(directory)
                derived = replace(derived, checksums=self._checksums(queues, derived))
                save_derived(self._files, derived)
            except BaseException:
                with self._lock:
                    self._queues.open_files.dirty |= dirty
                    self._queues.dirty_directories |= directories
                raise
            self._derived = derived
            save_rocketmq_checkpoint(self._files, store_ms)
            return True

    def _checksums(
        self, queues: list[QueueIndex], derived: Derived
    ) -> dict[QueueKey, tuple[int, ...]]:
        checksums = {}
        for queue in queues:
            key = queue.topic, queue.index
            # The topic may be deleted meanwhile.
            with suppress(MissingFileError):
                if key in derived.bounds:
                    bounds = derived.bounds[key]
                    checksums[key] = queue.checksums(bounds.start, bounds.end)
        return checksums

    def clean(self, now_ms: int, store_ms: int) -> CleanReport:
        """Delete expired files of the log, then the queues' and the index's files for them.

        If the disk is too full, also delete the oldest files that are not expired, as RocketMQ
        does, some in each call.
        """
        report = CleanReport()
        with self._work:
            if self._has_expired:
                self._remove_expired(store_ms, report)
            self._clean_before(
                self._expired_before(now_ms - self._config.retention_ms), store_ms, report
            )
            expired_files = report.log_files
            early_files_max = max(1, self._config.early_size_max // self._log.segment_size)
            while (
                report.disk_used_ratio > self._config.disk_used_ratio_max
                and report.early_files < early_files_max
            ):
                deletable = self._deletable()
                if not deletable:
                    break
                self._clean_before(deletable[0], store_ms, report)
                report.early_files = report.log_files - expired_files
        return report

    def _deletable(self) -> list[int]:
        """The ends of the log files that may be deleted: durable and published."""
        with self._lock:
            limit = min(self._durability.end, self._queues.published_end)
            return [base for base in self._log.segment_starts[1:] if base < limit]

    def _expired_before(self, oldest_ms: int) -> int:
        """The start of the log without the files whose records are all older."""
        log_start = self._log.start
        for base in self._deletable():
            # Store times never decrease: a file's records are not newer than the next file's first.
            if record_store_ms(self._log, base) >= oldest_ms:
                break
            log_start = base
        return log_start

    def _clean_before(self, log_start: int, store_ms: int, report: CleanReport) -> None:
        if log_start > self._log.start:
            self._delete_before(log_start, store_ms, report)
        report.log_start = self._log.start
        report.disk_used_ratio = self._files.disk_used_ratio()

    def _delete_before(self, log_start: int, store_ms: int, report: CleanReport) -> None:
        # The queues' ends must not depend on records that are deleted.
        if self._derived.position < log_start:
            self.checkpoint(store_ms)
        # After this a start takes these files as deleted, not as missing.
        self._durability.move_log_start(log_start)
        with self._lock:
            self._expired_log += self._log.forget_before(log_start)
            for queue in self._queues:
                queue.start = queue.first_at_or_after(log_start)
            self._expired_index += self._index.forget_before(log_start)
            self.index_position = max(self.index_position, log_start)
        self._has_expired = True
        self._remove_expired(store_ms, report)

    def _remove_expired(self, store_ms: int, report: CleanReport) -> None:
        """Remove the files that nothing needs any more; what the disk refuses stays for later."""
        try:
            # The log first: on a full disk, the checkpoint needs the room that this makes.
            report.log_files += self._remove(self._expired_log)
            self._files.sync_directory(LOG_DIRECTORY)
            with self._lock:
                names = [name for queue in self._queues for name in self._unneeded_files(queue)]
            if names or self._expired_index:
                # After this a start does not need these files.
                self.checkpoint(store_ms)
            for name in names:
                self._queues.open_files.close_file(name)
            report.queue_files += self._remove(names)
            report.index_files += self._remove(self._expired_index)
            self._has_expired = False
        except StorageError as error:
            _LOG.warning("files of deleted messages are not all removed yet: %s", error)

    def _remove(self, names: list[str]) -> int:
        """Remove files, and their names from the list; returns their number."""
        count = len(names)
        while names:
            self._files.unlink(names[-1])
            names.pop()
        return count

    def _unneeded_files(self, queue: QueueIndex) -> list[str]:
        """A queue's files before the one of its start; as in RocketMQ, the newest file stays."""
        first_kept = queue.file_name(max(0, min(queue.start, queue.end - 1)))
        paths = [join(queue.directory, name) for name in self._files.names(queue.directory)]
        return [path for path in paths if path < first_kept]


def _whole_records(data: Bytes) -> tuple[Bytes, Positions, Positions]:
    """The whole records at the start of published log, which may end in a record or a filler."""
    try:
        starts, sizes = record_bounds(data)
    except CorruptRecordError as error:
        data = data[: error.position]
        starts, sizes = record_bounds(data)
    if len(starts) and is_filler(data, int(starts[-1])):
        return data[: int(starts[-1])], starts[:-1], sizes[:-1]
    return data, starts, sizes
