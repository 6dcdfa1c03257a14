"""Opens a store: creates a new one, or recovers an old one.

    1. compare the log up to the mark with its checksums; the broker does not start if they differ.
       Of a large log only the newest part is compared; `UnverifiedLog` compares the rest later
    2. read queues from their files as far as those were synced, and the rest from the log
    3. keep whole records behind the mark, and cut what is torn behind them
    4. make everything kept durable and marked, before any client sees it

Another crash may interrupt any step: the next start repeats it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rocketmq_broker.storage.adoption.adopt import adopt, is_written_by_rocketmq
from rocketmq_broker.storage.disk.config_files import (
    CONFIG_DIRECTORY,
    CONSUMER_OFFSETS,
    OFFSET_TABLE,
    TOPICS,
    Configs,
    Table,
    is_of,
    table_of,
)
from rocketmq_broker.storage.disk.files import File, Files, crc32, file_size, names_in_directory
from rocketmq_broker.storage.errors import (
    DamagedStoreError,
    DataDirectoryError,
    MissingFileError,
    StorageError,
)
from rocketmq_broker.storage.keys.key_index import INDEX_DIRECTORY, KeyIndex
from rocketmq_broker.storage.log.commit_log import (
    LOG_DIRECTORY,
    CommitLog,
    Segment,
    log_damage,
    segment_name,
    segment_starts,
)
from rocketmq_broker.storage.log.durability import (
    LOG_CHECKSUMS_NAME,
    MARK_NAME,
    Durability,
    LogChecksum,
    LogChecksumFile,
    Mark,
    MarkFile,
    read_log_checksums,
)
from rocketmq_broker.storage.log.scan import columns_of, scan, split_filler, whole_prefix
from rocketmq_broker.storage.log.verification import verify
from rocketmq_broker.storage.queues.consume_queue import QUEUE_DIRECTORY
from rocketmq_broker.storage.queues.derived import (
    CHECKPOINT_NAME,
    DERIVED_NAME,
    Derived,
    load_derived,
    save_derived,
)
from rocketmq_broker.storage.queues.lite_queues import (
    is_lite_parent,
    lite_topic_counts,
)
from rocketmq_broker.storage.queues.lost_messages import load_holes, save_holes
from rocketmq_broker.storage.queues.queue_table import QueueTable
from rocketmq_broker.storage.recovery.queue_recovery import QueueRecovery, VoidDeletionError
from rocketmq_broker.storage.settings import (
    PLAN_NAME,
    LiteParent,
    RecoveryReport,
    StoreConfig,
)
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import is_lite_queue, parent_of

_LOG = logging.getLogger(__name__)

LOCK_NAME: Final = "lock"
ABORT_NAME: Final = "abort"
_ZEROS_STEP: Final = 1024 * 1024
# Only a broker's directory has one of these.
_BROKER_NAMES: Final = frozenset({LOG_DIRECTORY, QUEUE_DIRECTORY, MARK_NAME, LOG_CHECKSUMS_NAME})
# A broker that ended during its first start may have left only these.
_EARLY_NAMES: Final = frozenset(
    {ABORT_NAME, CHECKPOINT_NAME, CONFIG_DIRECTORY, DERIVED_NAME, INDEX_DIRECTORY, LOCK_NAME}
)
# File systems and desktops create these in any directory.
_SYSTEM_NAMES: Final = frozenset({"lost+found", ".DS_Store", ".directory"})
_SHOWN_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Recovered:
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
        report = RecoveryReport(was_clean=was_clean, adopted=adopted)
        recovered = _Recovery(files, config, mark_file, report, opened).run()
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
        mark_file.write(Mark.at_anchor(0, 0, config.segment_size, config.queue_file_entries))
        files.sync_directory("")
    return mark_file


class _Recovery:
    """One opening, which fills the report."""

    def __init__(
        self,
        files: Files,
        config: StoreConfig,
        mark_file: MarkFile,
        report: RecoveryReport,
        opened: ExitStack,
    ) -> None:
        assert mark_file.mark is not None
        self._files = files
        self._config = config
        self._mark_file = mark_file
        self._mark = mark_file.mark
        self._report = report
        self._opened = opened
        self._configs = Configs(files)
        self._dead_before = dict(self._configs.dead_before)
        self._store_ms = 0
        self._log = CommitLog(files, self._mark.segment_size, self._segments(), self._mark.end)
        opened.callback(self._log.close)
        self._queues = QueueTable(files, self._mark.queue_file_entries)
        opened.callback(self._queues.close)

    def run(self) -> Recovered:
        mark, report = self._mark, self._report
        derived = self._load_derived()
        checksum_file = LogChecksumFile(
            self._files, log_start=mark.log_start, anchor=mark.anchor, create=True
        )
        self._opened.callback(checksum_file.close)
        checksums = checksum_file.checksums
        scan_start = mark.log_start if derived is None else derived.position
        self._verify_start = min(scan_start, mark.end - self._config.verified_size)
        report.verified_size = verify(self._log, mark, checksums, start=self._verify_start)

        while True:
            holes = load_holes(self._files)
            kept_holes = holes.living(mark.log_start, self._dead_before)
            recovery = QueueRecovery(
                self._files,
                self._log,
                self._queues,
                self._dead_before,
                kept_holes.served(),
                self._config.verified_size,
            )
            try:
                derived, end = self._fill_queues(recovery, derived, checksums)
                break
            except VoidDeletionError as void:
                self._void(void.topic)
                self._queues.forget()
        for topic in recovery.void_topics:
            self._void(topic)
        if not report.was_clean or report.adopted is not None:
            report.cut_size = self._cut(end)
        self._log.end = end

        durability = self._make_durable(checksum_file)
        recovery.finish(end)
        if list(kept_holes) != list(holes):
            save_holes(self._files, kept_holes)
        # A position behind the end of a shortened log would kill the records written there next.
        self._configs.set_dead(
            {
                topic: min(position, end)
                for topic, position in self._dead_before.items()
                if position > mark.log_start
            }
        )
        index, index_position = self._open_index(derived)
        report.log_start = self._log.start
        report.log_end = end
        report.clamped_offsets = clamp_committed_offsets(self._configs, self._queues)
        report.lite_parents = tuple(self._lite_parents())
        return Recovered(
            log=self._log,
            queues=self._queues,
            index=index,
            index_position=index_position,
            durability=durability,
            configs=self._configs,
            derived=derived,
            report=report,
            store_ms=self._store_ms,
            unverified=tuple(each for each in checksums if each.end <= self._verify_start),
        )

    def _fill_queues(
        self, recovery: QueueRecovery, derived: Derived | None, checksums: Sequence[LogChecksum]
    ) -> tuple[Derived, int]:
        """Fill the queues; returns the checkpoint that a start may trust, and the log's end."""
        mark, report = self._mark, self._report
        if derived is None or derived.is_rebuilding or not recovery.adopt(derived):
            if self._verify_start > mark.log_start:
                report.verified_size += verify(self._log, mark, checksums, start=mark.log_start)
                self._verify_start = mark.log_start
            derived = self._discard_queues(recovery, derived)
        self._store_ms = derived.store_ms
        report.scanned_records = report.kept_records = 0
        self._read_acknowledged(recovery, max(derived.position, mark.log_start))
        return derived, self._read_tail(recovery)

    def _void(self, topic: str) -> None:
        """Take back a deletion that the topic outlived: the disk refused a part of it."""
        del self._dead_before[topic]
        _LOG.warning(
            "topic=%s: its deletion was not completed, and messages were stored after it: all of "
            "its messages are kept",
            topic,
        )

    def _make_durable(self, checksum_file: LogChecksumFile) -> Durability:
        """Bring the kept log to the disk, after the file that marks the store as open."""
        self._files.open(ABORT_NAME, create=True).close()
        self._files.sync_directory("")
        durability = Durability(self._log, self._mark_file, checksum_file, self._config)
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
        rebuilding = replace(
            derived or Derived(),
            position=self._mark.log_start,
            bounds=recovery.known_ends(derived),
            is_rebuilding=True,
        )
        # Saved before the first file is removed: after a crash the next start trusts no file.
        save_derived(self._files, rebuilding)
        recovery.discard(rebuilding)
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
            acknowledged = min(size, mark.end - base)
            if base not in found:
                raise log_damage(base, size, "a file of acknowledged log is missing", acknowledged)
            found_size = file_size(self._files, segment_name(base))
            if found_size < acknowledged and not self._lacks_only_zeros(base + found_size):
                reason = "a file of acknowledged log is too short"
                raise log_damage(base + found_size, size, reason, acknowledged, found_size)
            segments.append(Segment(self._files, base, size, create=False))
            base += size
        for other in found:
            # Created while an older file was not on the disk: none of it was acknowledged.
            if other > base:
                self._remove(segment_name(other))
        return segments

    def _lacks_only_zeros(self, position: int) -> bool:
        """True if zeros complete a file that ends at a position, as behind a filler record."""
        mark, size = self._mark, self._mark.segment_size
        base = position - position % size
        checksums = read_log_checksums(self._files, anchor=mark.anchor)
        checksums.append(LogChecksum(mark.anchor, mark.end, mark.checksum))
        with closing(self._files.open(segment_name(base))) as file:
            for checksum in checksums:
                if checksum.end <= position or checksum.start >= base + size:
                    continue
                length = checksum.end - checksum.start
                data = file.pread(length, checksum.start - base).ljust(length, b"\x00")
                if crc32(data, 0) != checksum.crc:
                    return False
                position = checksum.end
        return position >= min(base + size, mark.end)

    def _read_acknowledged(self, recovery: QueueRecovery, start: int) -> None:
        """Add the records before the mark to the queues."""
        position = start
        while position < self._mark.end:
            segment = self._log.segment_of(position)
            end = min(segment.end, self._mark.end)
            data = segment.bytes[position - segment.start : end - segment.start]
            try:
                if end == segment.end:
                    data = split_filler(data)
                for scanned in scan(data, position, self._dead_before):
                    count = recovery.following_count(scanned)
                    if count < len(scanned.positions):
                        at = int(scanned.positions[count])
                        reason = "the record does not follow the end of its queue"
                        raise log_damage(at, segment.size, reason)
                    recovery.add(scanned, count)
                    self._report.scanned_records += count
                    self._store_ms = max(self._store_ms, scanned.newest_ms)
            except CorruptRecordError as error:
                raise log_damage(position, segment.size, str(error)) from error
            position = end

    def _read_tail(self, recovery: QueueRecovery) -> int:
        """Keep the whole records behind the mark; returns the end of the last one."""
        position = self._mark.end
        while True:
            segment = self._log.segment_at(position)
            if segment is None:
                return position
            chain, layout = whole_prefix(segment.tail(position), position)
            if len(chain.starts):
                scanned = columns_of(layout, position, self._dead_before)
                count = recovery.following_count(scanned)
                recovery.add(scanned, count)
                self._report.kept_records += count
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
                segment = self._log.segment_of(base)
                cut_size += _used_size(segment.tail(base))
                self._log.drop(base)
                self._remove(segment.name)
        last = self._log.segment_at(end)
        if last is not None:
            # A stale record that begins where a new one ends would else be kept by the next start.
            cut_size += _used_size(last.tail(end))
            last.clear_from(end)
            last.sync()
        if self._report.removed_files:
            self._files.sync_directory(LOG_DIRECTORY)
        return cut_size

    def _open_index(self, derived: Derived) -> tuple[KeyIndex, int]:
        slots, entries = self._config.index_slot_count, self._config.index_entry_count
        if derived.index_files:
            slots, entries = derived.index_slots, derived.index_entries
        index = KeyIndex(self._files, self._queues.open_files, slots=slots, entries=entries)
        position = derived.index_position if index.load(derived.index_files) else 0
        return index, max(position, self._log.start)

    def _lite_parents(self) -> Iterator[LiteParent]:
        """The topics that have lite topics, or may have them."""
        counts = lite_topic_counts(self._files)
        topics = self._configs.load_table(TOPICS)
        declared = [
            name for name, config in topics.items() if is_lite_parent(config.get("attributes"))
        ]
        for topic in sorted({*counts, *declared}):
            messages = sum(
                queue.end - queue.start for queue in self._queues if queue.topic == topic
            )
            yield LiteParent(topic, counts[topic], messages)

    def _remove(self, name: str) -> None:
        self._files.unlink(name)
        self._report.removed_files += (name,)


def _used_size(data: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> int:
    """The end of the data that is not zero; a whole step of zeros ends the search."""
    used = 0
    for begin in range(0, len(data), _ZEROS_STEP):
        found = np.flatnonzero(data[begin : begin + _ZEROS_STEP])
        if not len(found):
            break
        used = begin + int(found[-1]) + 1
    return used


def clamp_committed_offsets(configs: Configs, queues: QueueTable) -> tuple[str, ...]:
    """Limit `consumerOffset.json` to what the log holds; returns the changed `topic@group/queue`.

    Offsets before a queue's start stay: the group learns that its messages have expired. Offsets
    of lite queues stay, too: their ends are not known here.
    """
    content = configs.load(CONSUMER_OFFSETS)
    topics = configs.load_table(TOPICS)
    changed = []
    kept: Table = {}
    for key, offsets in table_of(CONSUMER_OFFSETS, content).items():
        topic = key.partition("@")[0]
        is_deleted = parent_of(topic) not in topics and is_of(key, configs.dead_before)
        for index, text in offsets.items():
            offset = int(str(text))
            queue = queues.get(topic, int(index))
            end = queue.end if queue is not None else 0
            if is_lite_queue(topic):
                end = offset
            if is_deleted or offset > end:
                changed.append(f"{key}/{index}")
            if not is_deleted:
                kept.setdefault(key, {})[str(index)] = min(offset, end)
    if changed:
        configs.save(CONSUMER_OFFSETS, {**content, OFFSET_TABLE: kept})
    return tuple(changed)


def check_data_directory(name: str) -> None:
    """Raise DataDirectoryError if a directory is not writable, or holds other files.

    A directory that does not exist yet is accepted if it can be created.
    """
    names = set(names_in_directory(name)) - _SYSTEM_NAMES
    known = _BROKER_NAMES | _EARLY_NAMES
    brokers = {entry for entry in names if entry.removesuffix(".tmp") in known}
    if names & _BROKER_NAMES or names == brokers:
        return
    others = sorted(names - brokers)
    shown = ", ".join(others[:_SHOWN_MAX]) + (", ..." if len(others) > _SHOWN_MAX else "")
    raise DataDirectoryError(name, f"it holds other files ({shown}) and no broker's data")
