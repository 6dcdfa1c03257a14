"""Opens a store: creates a new one, or recovers an old one.

    1. compare the log up to the mark with its checksums; the broker does not start if they differ.
       Of a large log only the newest part is compared; `unverified_log` compares the rest later
    2. read queues from their files as far as those were synced, and the rest from the log
    3. keep whole records behind the mark, and cut what is torn behind them
    4. make everything kept durable and marked, before any client sees it

Another crash may interrupt any step: the next start repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rocketmq_arrow.decode.layout import read_layout
from rocketmq_broker.storage.adoption.adopt import adopt, is_written_by_rocketmq
from rocketmq_broker.storage.disk.config_files import CONFIG_DIRECTORY, TOPICS, Configs
from rocketmq_broker.storage.disk.files import File, Files, file_size
from rocketmq_broker.storage.errors import DamagedStoreError, MissingFileError, StorageError
from rocketmq_broker.storage.keys.key_index import INDEX_DIRECTORY, KeyIndex
from rocketmq_broker.storage.log.commit_log import CommitLog
from rocketmq_broker.storage.log.durability import Durability
from rocketmq_broker.storage.log.durable_mark import MARK_NAME, Mark, MarkFile
from rocketmq_broker.storage.log.log_checksums import LogChecksum, LogChecksumFile
from rocketmq_broker.storage.log.scan import columns_of, scan, split_filler, whole_prefix
from rocketmq_broker.storage.log.segment import LOG_DIRECTORY, Segment, segment_name, segment_starts
from rocketmq_broker.storage.log.verification import verify
from rocketmq_broker.storage.queues.consume_queue import QUEUE_DIRECTORY
from rocketmq_broker.storage.queues.derived import Derived, load_derived, save_derived
from rocketmq_broker.storage.queues.lite_queues import is_lite_parent, lite_topic_counts
from rocketmq_broker.storage.queues.lost_messages import load_holes, save_holes
from rocketmq_broker.storage.queues.queue_table import QueueTable
from rocketmq_broker.storage.recovery.offset_recovery import clamp_committed_offsets
from rocketmq_broker.storage.recovery.queue_recovery import QueueRecovery
from rocketmq_broker.storage.settings import (
    PLAN_NAME,
    Adoption,
    LiteParent,
    RecoveryReport,
    StoreConfig,
)
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import Bounds

LOCK_NAME: Final = "lock"
ABORT_NAME: Final = "abort"
_ZEROS_STEP: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Recovered:
    """The parts of an open store."""

    log: CommitLog
    queues: QueueTable
    index: KeyIndex
    index_position: int
    durability: Durability
    configs: Configs
    derived: Derived
    report: RecoveryReport
    store_ms: int
    """The store time of the newest record."""
    unverified: tuple[LogChecksum, ...] = ()
    """Checksums of log that was not compared with them."""


def recover(files: Files, config: StoreConfig, lock: File) -> Recovered:
    """Open the store that is there, or create one. The caller holds its `lock`.

    Raises:
        DamagedStoreError: acknowledged data is damaged.
        StorageError: a repair is not finished, or the mark is missing.
    """
    for directory in (LOG_DIRECTORY, QUEUE_DIRECTORY, INDEX_DIRECTORY, CONFIG_DIRECTORY):
        files.make_directory(directory)
    if PLAN_NAME in files.names(""):
        reason = (
            "a repair was begun and not finished; run `rmq fsck --repair` on the directory again"
        )
        raise StorageError(PLAN_NAME, 0, reason)
    was_clean = ABORT_NAME not in files.names("")
    adopted = None
    # RocketMQ writes a word into the file that it locks; this broker does not.
    if is_written_by_rocketmq(files, has_lock_word=lock.size() > 0):
        adopted = adopt(files, config, lock, was_clean=was_clean)
    if lock.size():
        # The mark is valid again, so RocketMQ's queues are not needed any more.
        lock.resize(0)
        lock.sync()
    with ExitStack() as opened:
        mark_file = opened.enter_context(closing(_open_mark(files, config)))
        recovery = _Recovery(files, config, mark_file, opened)
        recovered = recovery.run(was_clean=was_clean, adopted=adopted)
        # From here on the store closes the files.
        opened.pop_all()
        return recovered


def _open_mark(files: Files, config: StoreConfig) -> MarkFile:
    has_log = bool(files.names(LOG_DIRECTORY))
    try:
        mark_file = MarkFile(files)
    except MissingFileError:
        if has_log:
            reason = (
                "there is a log, but its durable mark is missing; put it back from a backup, or "
                "have `rmq fsck DIR --repair` create it again"
            )
            raise StorageError(MARK_NAME, 0, reason) from None
        mark_file = MarkFile(files, create=True)
    if mark_file.mark is None:
        # A crash while the store was created leaves an empty mark, but no log.
        if has_log:
            mark_file.close()
            raise DamagedStoreError(MARK_NAME, 0, "the durable mark is unreadable", 1, 0)
        mark_file.write(
            Mark(
                end=0,
                log_start=0,
                anchor=0,
                checksum=0,
                segment_size=config.segment_size,
                queue_file_entries=config.queue_file_entries,
            )
        )
        files.sync_directory("")
    return mark_file


class _Recovery:
    """One opening."""

    def __init__(
        self, files: Files, config: StoreConfig, mark_file: MarkFile, opened: ExitStack
    ) -> None:
        assert mark_file.mark is not None
        self._files = files
        self._config = config
        self._mark_file = mark_file
        self._mark = mark_file.mark
        self._configs = Configs(files)
        self._removed: list[str] = []
        self._scanned_count = 0
        self._kept_count = 0
        self._store_ms = 0
        self._opened = opened

    def run(self, *, was_clean: bool, adopted: Adoption | None) -> Recovered:
        files, mark = self._files, self._mark
        self._log = CommitLog(files, mark.segment_size, self._segments(), mark.end)
        self._opened.callback(self._log.close)
        derived = self._load_derived()
        scan_start = mark.log_start if derived is None else derived.position
        checksum_file = LogChecksumFile(
            files, log_start=mark.log_start, anchor=mark.anchor, create=True
        )
        self._opened.callback(checksum_file.close)
        checksums = checksum_file.checksums
        verify_start = min(scan_start, mark.end - self._config.verified_size)
        verified_size = verify(self._log, mark, checksums, start=verify_start)

        queues = QueueTable(files, mark.queue_file_entries)
        self._opened.callback(queues.close)
        holes = load_holes(files)
        kept_holes = holes.living(mark.log_start, self._configs.dead_before)
        recovery = QueueRecovery(
            files, self._log, queues, self._configs.dead_before, kept_holes.served()
        )
        if derived is None or derived.is_rebuilding or not recovery.adopt(derived):
            scan_start = mark.log_start
            if verify_start > scan_start:
                verified_size += verify(self._log, mark, checksums, start=scan_start)
                verify_start = scan_start
            derived = self._discard_queues(recovery, derived)
        self._store_ms = derived.store_ms
        self._read_acknowledged(recovery, max(scan_start, mark.log_start))
        end = self._read_tail(recovery)
        cut_size = 0 if was_clean and adopted is None else self._cut(end)
        self._log.end = end

        durability = self._make_durable(checksum_file)
        recovery.finish(end)
        if list(kept_holes) != list(holes):
            save_holes(files, kept_holes)
        self._configs.clamp_dead(log_start=mark.log_start, log_end=end)
        index, index_position = self._open_index(queues, derived)
        report = RecoveryReport(
            was_clean=was_clean,
            log_start=self._log.start,
            log_end=end,
            kept_records=self._kept_count,
            cut_size=cut_size,
            scanned_records=self._scanned_count,
            verified_size=verified_size,
            removed_files=tuple(self._removed),
            clamped_offsets=clamp_committed_offsets(self._configs, queues),
            adopted=adopted,
            lite_parents=tuple(self._lite_parents(queues)),
        )
        return Recovered(
            log=self._log,
            queues=queues,
            index=index,
            index_position=index_position,
            durability=durability,
            configs=self._configs,
            derived=derived,
            report=report,
            store_ms=self._store_ms,
            unverified=tuple(each for each in checksums if each.end <= verify_start),
        )

    def _make_durable(self, checksum_file: LogChecksumFile) -> Durability:
        """Bring the kept log to the disk, after the file that marks the store as open."""
        self._files.open(ABORT_NAME, create=True).close()
        self._files.sync_directory("")
        durability = Durability(
            self._log, self._mark_file, checksum_file, self._config.checksum_range_size
        )
        durability.sync()
        return durability

    def _load_derived(self) -> Derived | None:
        """The last checkpoint; None if it is missing, or reaches behind the mark."""
        derived = load_derived(self._files)
        if derived is None and not self._log.segment_starts:
            derived = Derived()
            save_derived(self._files, derived)
        if derived is not None and derived.position > self._mark.end:
            return None
        return derived

    def _discard_queues(self, recovery: QueueRecovery, derived: Derived | None) -> Derived:
        """Remove the queues' files; returns what a start may trust until the next checkpoint."""
        ends = recovery.known_ends(derived)
        rebuilding = replace(
            derived or Derived(),
            position=self._mark.log_start,
            bounds={key: Bounds(end, end) for key, end in ends.items()},
            is_rebuilding=True,
        )
        # Saved before the first file is removed: after a crash the next start trusts no file.
        save_derived(self._files, rebuilding)
        recovery.discard(ends)
        return rebuilding

    def _segments(self) -> list[Segment]:
        """The log's files. Those of acknowledged data must be there, whole."""
        mark, size = self._mark, self._mark.segment_size
        found = segment_starts(self._files)
        start = mark.log_start - mark.log_start % size
        for base in found:
            if base < start or base % size:
                self._remove(segment_name(base))
        segments = []
        base = start
        while base < mark.end or base in found:
            name = segment_name(base)
            if base not in found:
                reason = "a file of acknowledged log is missing"
                raise DamagedStoreError(name, 0, reason, min(size, mark.end - base), 0)
            acknowledged = min(size, mark.end - base)
            found_size = file_size(self._files, name)
            if found_size < acknowledged:
                reason = "a file of acknowledged log is too short"
                raise DamagedStoreError(name, found_size, reason, acknowledged, found_size)
            segments.append(Segment(self._files, base, size, create=False))
            base += size
        for other in found:
            # Created while an older file was not on the disk: none of it was acknowledged.
            if other > base:
                self._remove(segment_name(other))
        return segments

    def _read_acknowledged(self, recovery: QueueRecovery, start: int) -> None:
        """Add the records before the mark to the queues."""
        position = start
        while position < self._mark.end:
            segment = self._log.segment_at(position)
            assert segment is not None
            end = min(segment.end, self._mark.end)
            data = segment.bytes[position - segment.start : end - segment.start]
            try:
                if end == segment.end:
                    data = split_filler(data)
                for scanned in scan(data, position, self._configs.dead_before):
                    count = recovery.following_count(scanned)
                    if count < len(scanned.positions):
                        at = int(scanned.positions[count])
                        reason = "the record does not follow the end of its queue"
                        raise DamagedStoreError(segment.name, at - segment.start, reason, 0, 0)
                    recovery.add(scanned, count)
                    self._scanned_count += count
                    self._store_ms = max(self._store_ms, scanned.newest_ms)
            except CorruptRecordError as error:
                raise DamagedStoreError(
                    segment.name, position - segment.start, str(error), 0, 0
                ) from error
            position = end

    def _read_tail(self, recovery: QueueRecovery) -> int:
        """Keep the whole records behind the mark; returns the end of the last one."""
        position = self._mark.end
        while True:
            segment = self._log.segment_at(position)
            if segment is None:
                return position
            data = segment.bytes[position - segment.start :]
            chain = whole_prefix(data, position)
            if len(chain.starts):
                layout, _ = read_layout(data, chain.starts, chain.sizes, None)
                scanned = columns_of(layout, position, self._configs.dead_before)
                count = recovery.following_count(scanned)
                recovery.add(scanned, count)
                self._kept_count += count
                self._store_ms = max(self._store_ms, scanned.newest_ms)
                chain = chain.first(count)
            if not chain.has_filler:
                return position + chain.end
            position = segment.end

    def _cut(self, end: int) -> int:
        """Clear the log behind its end, durably; returns the size of what was not zero."""
        cut_size = 0
        for base in self._log.segment_starts:
            if base >= end:
                segment = self._log.segment_at(base)
                assert segment is not None
                cut_size += _used_size(segment.bytes)
                self._log.drop(base)
                self._remove(segment.name)
        last = self._log.segment_at(end)
        if last is not None:
            # A stale record that begins where a new one ends would else be kept by the next start.
            cut_size += _used_size(last.bytes[end - last.start :])
            last.clear_from(end)
            last.sync()
        if self._removed:
            self._files.sync_directory(LOG_DIRECTORY)
        return cut_size

    def _open_index(self, queues: QueueTable, derived: Derived) -> tuple[KeyIndex, int]:
        slots, entries = self._config.index_slot_count, self._config.index_entry_count
        if derived.index_files:
            slots, entries = derived.index_slots, derived.index_entries
        index = KeyIndex(self._files, queues.open_files, slots=slots, entries=entries)
        position = derived.index_position if index.load(derived.index_files) else 0
        return index, max(position, self._log.start)

    def _lite_parents(self, queues: QueueTable) -> Iterator[LiteParent]:
        """The topics that have lite topics, or may have them."""
        counts = lite_topic_counts(self._files)
        topics = self._configs.load_table(TOPICS)
        declared = [
            name for name, config in topics.items() if is_lite_parent(config.get("attributes"))
        ]
        for topic in sorted({*counts, *declared}):
            messages = sum(queue.end - queue.start for queue in queues if queue.topic == topic)
            yield LiteParent(topic, counts[topic], messages)

    def _remove(self, name: str) -> None:
        self._files.unlink(name)
        self._removed.append(name)


def _used_size(data: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> int:
    """The end of the data that is not zero; a whole step of zeros ends the search."""
    used = 0
    for begin in range(0, len(data), _ZEROS_STEP):
        found = np.flatnonzero(data[begin : begin + _ZEROS_STEP])
        if not len(found):
            break
        used = begin + int(found[-1]) + 1
    return used
