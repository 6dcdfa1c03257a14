"""Takes over a data directory that RocketMQ itself has written to: verifies it, then marks it.

Such a directory has no mark, or an old one that RocketMQ did not move. So the whole log is read. It
ends at the first record that is not sound, and must have all messages that RocketMQ's own consume
queues list. Nothing is written before that is known. After a crash at any later step, the next
start adopts the directory again, or recovers it. Consume queues and key index are then built from
the log, which is not changed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_broker.storage.disk.config_files import (
    CONFIG_DIRECTORY,
    CONSUMER_OFFSETS,
    LMQ_OFFSETS,
    OFFSET_TABLE,
    TIMERS,
    TOPICS,
    Configs,
    table_of,
)
from rocketmq_broker.storage.disk.files import File, Files, crc32, file_size, join, read_file
from rocketmq_broker.storage.errors import DamagedStoreError, StorageError
from rocketmq_broker.storage.log.commit_log import (
    LOG_DIRECTORY,
    Segment,
    log_damage,
    segment_name,
    segment_starts,
)
from rocketmq_broker.storage.log.durability import (
    MARK_NAME,
    LogChecksum,
    Mark,
    read_mark,
    write_first_mark,
    write_log_checksums,
)
from rocketmq_broker.storage.log.scan import (
    ROWS_PER_CHUNK,
    Scanned,
    columns_of,
    sound_prefix,
)
from rocketmq_broker.storage.queues.consume_queue import (
    BLANK_ENTRY_SIZE,
    ENTRY,
    QUEUE_DIRECTORY,
    QueueKey,
    read_entries,
    written,
)
from rocketmq_broker.storage.queues.derived import DERIVED_NAME, Derived, save_derived
from rocketmq_broker.storage.queues.lite_queues import queue_directories
from rocketmq_broker.storage.settings import Adoption, StoreConfig
from rocketmq_wire.model import Bounds

_TIMER_CHECK: Final = "timercheck"
_READ_UNTIL: Final = struct.Struct(">q")
_ROCKSDB_TOPICS: Final = "topics"
_LOCK_WORD: Final = b"lock"


def is_written_by_rocketmq(files: Files, *, has_lock_word: bool) -> bool:
    """True if RocketMQ created this store, or had it open since this broker closed it."""
    if not segment_starts(files):
        return False
    # This broker's store has these files from the start. One without its mark is damaged.
    has_own_files = {MARK_NAME, DERIVED_NAME} & set(files.names(""))
    return has_lock_word or not has_own_files


def adopt(files: Files, config: StoreConfig, lock: File, *, was_clean: bool) -> Adoption:
    """Verify a store that RocketMQ wrote, and write its mark. The caller empties `lock` afterwards.

    Raises:
        DamagedStoreError: the log lacks messages of RocketMQ's queues, or of the older mark.
        StorageError: this kind of store cannot be read.
    """
    return _Adoption(files, config, lock, was_clean=was_clean).run()


@dataclass(frozen=True, slots=True)
class _ListedQueue:
    """The messages that one of RocketMQ's own consume queues lists."""

    end: int
    """Offset behind the last entry; 0 without entries."""
    entries_per_file: int
    living: npt.NDArray[np.int64]
    """Log positions of the records that have not expired, ascending."""

    def positions_from(self, log_end: int) -> npt.NDArray[np.int64]:
        """The listed log positions at or behind a position."""
        return self.living[int(np.searchsorted(self.living, log_end)) :]


class _Adoption:
    def __init__(self, files: Files, config: StoreConfig, lock: File, *, was_clean: bool) -> None:
        self._files = files
        self._config = config
        self._lock = lock
        self._was_clean = was_clean
        self._configs = Configs(files)
        self._old_mark = read_mark(files)
        self._bases = segment_starts(files)
        self._size = self._segment_size()
        self._segments: dict[int, Segment] = {}
        self._adoption = Adoption(log_start=self._bases[0])
        self._topics = self._known_topics()
        """Topics that exist, or have a queue."""
        self._dead_before = dict(self._configs.dead_before)
        self._first_offsets: dict[QueueKey, int] = {}
        """First offset of each queue in the log."""
        self._ends: dict[QueueKey, int] = {}

    def run(self) -> Adoption:
        queues = {
            key: _listed_queue(self._files, directory, self._bases[0])
            for key, directory in queue_directories(self._files)
        }
        try:
            self._open_segments()
            for (topic, _), queue in queues.items():
                if queue.end:
                    self._topics.add(topic)
                if len(queue.living):
                    first = int(queue.living[0])
                    self._dead_before[topic] = min(self._dead_before.get(topic, first), first)
            end = self._read_log()
            self._check_end(end)
            self._compare_queues(queues, end)
            self._write(queues, self._bases[0], end)
        finally:
            for segment in self._segments.values():
                segment.close()
        self._adoption.log_end = end
        self._adoption.queues = len(self._ends)
        return self._adoption

    # --- reading ------------------------------------------------------------------------------

    def _segment_size(self) -> int:
        """The size of RocketMQ's files of the log. Only the last file may be shorter."""
        if len(self._bases) > 1:
            size = self._bases[1] - self._bases[0]
        else:
            size = file_size(self._files, segment_name(self._bases[0]))
        for base, following in zip(self._bases, self._bases[1:], strict=False):
            if following - base != size:
                raise log_damage(base + size, size, "a file of the log is missing", size)
        if size <= 0 or self._bases[0] % size:
            raise StorageError(segment_name(self._bases[0]), 0, "the log's files have no one size")
        return size

    def _open_segments(self) -> None:
        for base in self._bases:
            name = segment_name(base)
            size = file_size(self._files, name)
            if size != self._size and base != self._bases[-1]:
                reason = "the file is not as long as the log's other files"
                raise DamagedStoreError(name, size, reason, self._size, size)
            self._segments[base] = Segment(self._files, base, self._size, create=False)

    def _known_topics(self) -> set[str]:
        names = self._files.names(CONFIG_DIRECTORY)
        if TOPICS not in names and _ROCKSDB_TOPICS in names:
            reason = (
                "this broker keeps its topics in RocksDB, which cannot be read here: "
                "export them with `mqadmin rocksDBConfigToJson` first"
            )
            raise StorageError(join(CONFIG_DIRECTORY, _ROCKSDB_TOPICS), 0, reason)
        return set(self._configs.load_table(TOPICS))

    def _read_log(self) -> int:
        """Add all sound records; returns the end of the last one."""
        end = self._bases[0]
        for segment in self._segments.values():
            end = self._read_segment(segment)
            if end < segment.end:
                break
        return end

    def _read_segment(self, segment: Segment) -> int:
        """Add a file's sound records; returns their end, after a filler the end of the file."""
        position = 0
        while True:
            chain, layout = sound_prefix(segment.bytes, segment.start, position, ROWS_PER_CHUNK)
            self._add(columns_of(layout, segment.start, {}))
            if chain.has_filler:
                return segment.end
            if len(chain.starts) < ROWS_PER_CHUNK:
                return segment.start + chain.end
            position = chain.end

    def _add(self, scanned: Scanned) -> None:
        for part in scanned.queues:
            key = topic, index = part.topic, part.queue_index
            positions = scanned.positions[part.rows]
            if topic not in self._topics:
                last = int(positions[-1])
                self._dead_before[topic] = max(self._dead_before.get(topic, 0), last + 1)
            is_living = positions >= self._dead_before.get(topic, 0)
            offsets = part.offsets[is_living]
            dead_count = len(positions) - len(offsets)
            if dead_count:
                counts = self._adoption.dead_records
                counts[topic] = counts.get(topic, 0) + dead_count
            if not len(offsets):
                continue
            start = self._ends.get(key, int(offsets[0]))
            wrong = np.flatnonzero(offsets != start + np.arange(len(offsets)))
            if len(wrong):
                row = int(wrong[0])
                at = int(positions[is_living][row])
                reason = f"the record of {topic}/{index} does not follow the end of its queue"
                raise log_damage(at, self._size, reason, start + row, int(offsets[row]))
            self._first_offsets.setdefault(key, start)
            self._ends[key] = start + len(offsets)
            self._adoption.records += len(offsets)

    def _check_end(self, end: int) -> None:
        """Raise DamagedStoreError if the log must be longer, unless a crash cut it."""
        old = self._old_mark
        if old is not None and end < old.end:
            reason = "the log ends before what this broker acknowledged when it had this store"
            raise log_damage(end, self._size, reason, old.end, end)
        for later in self._bases:
            if later > end and self._is_record(later):
                reason = "the log is damaged here, and continues in a later file"
                raise log_damage(end, self._size, reason, later, end)

    def _compare_queues(self, queues: Mapping[QueueKey, _ListedQueue], end: int) -> None:
        """Raise DamagedStoreError if the log lacks a record that RocketMQ's queues list."""
        for key, queue in queues.items():
            beyond = queue.positions_from(end)
            self._adoption.torn_records += len(beyond)
            at = next((position for position in beyond if self._is_record(position)), None)
            if at is None and len(beyond) and self._was_clean:
                at = int(beyond[0])
            if at is not None:
                reason = f"the log is damaged here, and {key[0]}/{key[1]} has messages behind it"
                raise log_damage(end, self._size, reason, at, end)
            listed_end = queue.end - len(beyond)
            found_end = self._ends.get(key, 0)
            # If the log has no record of the queue, all its messages have expired.
            if found_end < listed_end if found_end else len(beyond) < len(queue.living):
                reason = f"the log has not all messages that {key[0]}/{key[1]} lists"
                name = join(QUEUE_DIRECTORY, key[0], str(key[1]))
                raise DamagedStoreError(
                    name, listed_end * ENTRY.itemsize, reason, listed_end, found_end
                )

    def _is_record(self, position: int) -> bool:
        segment = self._segments.get(position - position % self._size)
        return segment is not None and segment.record_size(position) is not None

    # --- writing ------------------------------------------------------------------------------

    def _write(self, queues: Mapping[QueueKey, _ListedQueue], start: int, end: int) -> None:
        self._write_lock_word()
        needed = {topic: self._dead_before[topic] for topic in self._adoption.dead_records}
        self._configs.set_dead({**self._configs.dead_before, **needed})
        adopt_timers(self._files, self._configs)
        adopt_lmq_offsets(self._configs)
        self._files.unlink(DERIVED_NAME)
        self._files.sync_directory("")
        for segment in self._segments.values():
            if segment.start < end:
                segment.sync()
        self._files.sync_directory(LOG_DIRECTORY)
        write_log_checksums(self._files, self._checksums(start, end))
        entries = next(
            (queue.entries_per_file for queue in queues.values() if queue.entries_per_file),
            self._config.queue_file_entries,
        )
        mark = Mark.at_anchor(end, start, self._size, entries)
        write_first_mark(self._files, mark)
        ends = dict(self._first_offsets)
        for key, queue in queues.items():
            if key not in self._first_offsets and queue.end:
                # All its messages have expired, but its next offset stays.
                ends[key] = queue.end - len(queue.positions_from(end))
        bounds = {key: Bounds(offset, offset) for key, offset in ends.items() if offset}
        save_derived(self._files, Derived(position=start, bounds=bounds))

    def _write_lock_word(self) -> None:
        """Have the next start adopt the directory again after a crash in `_write`.

        RocketMQ's word in the lock file has that effect. A directory without the file, for
        example from a backup, would pass for this broker's own as soon as it has a mark. The mark
        alone does not have the next offsets of queues whose messages have all expired.
        """
        if self._lock.size() == 0:
            self._lock.pwrite(_LOCK_WORD, 0)
            self._lock.sync()

    def _checksums(self, start: int, end: int) -> Iterator[LogChecksum]:
        position = start
        while position < end:
            segment = self._segments[position - position % self._size]
            stop = min(segment.end, end, position + self._config.checksum_range_size)
            data = segment.view[position - segment.start : stop - segment.start]
            yield LogChecksum(position, stop, crc32(data, 0))
            position = stop


def _listed_queue(files: Files, directory: str, log_start: int) -> _ListedQueue:
    end = entries_per_file = 0
    living = [np.empty(0, np.int64)]
    for first, entries in read_entries(files, directory):
        entries_per_file = max(entries_per_file, len(entries))
        used = written(entries)
        positions = used["position"].astype(np.int64)
        if len(used):
            end = first + len(used)
        is_living = (used["size"] != BLANK_ENTRY_SIZE) & (positions >= log_start)
        living.append(positions[is_living])
    return _ListedQueue(end, entries_per_file, np.concatenate(living))


def adopt_timers(files: Files, configs: Configs) -> None:
    """Keep in `timers.json` up to which time RocketMQ has delivered; without its file do nothing.

    RocketMQ also keeps a wheel of files that lists when each message is due. The messages have
    that time, too, so the wheel is not read.
    """
    data = read_file(files, join(CONFIG_DIRECTORY, _TIMER_CHECK))
    if data is None or len(data) < _READ_UNTIL.size:
        return
    (read_until_ms,) = _READ_UNTIL.unpack_from(data)
    # RocketMQ would have read the messages of that time next.
    delivered_ms = max(int(read_until_ms) - 1, 0)
    known = configs.load(TIMERS)
    start = known.get("start", 0)
    configs.save(TIMERS, {**known, "deliveredUntilMs": delivered_ms, "start": start})


def adopt_lmq_offsets(configs: Configs) -> None:
    """Take over offsets that groups committed while a RocketMQ with lite topics used the store."""
    content = configs.load(LMQ_OFFSETS)
    version = content.get("dataVersion")
    # RocketMQ writes the time of a change here; this broker writes 0.
    if not isinstance(version, dict) or not version.get("timestamp"):
        return
    if OFFSET_TABLE not in content:
        return
    own = configs.load(CONSUMER_OFFSETS)
    offsets = {**table_of(CONSUMER_OFFSETS, own), **table_of(LMQ_OFFSETS, content)}
    own_version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
    configs.save(CONSUMER_OFFSETS, {**own, "dataVersion": own_version, OFFSET_TABLE: offsets})
