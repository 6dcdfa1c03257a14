"""Takes over a data directory that RocketMQ itself has written to: verifies it, then marks it.

Such a directory has no mark, or one that RocketMQ left behind while the log went on. So the whole
log is read: it ends where its records stop being sound, and what RocketMQ's own consume queues
list must be there. Nothing is written before that is known; afterwards a crash at any step is
followed by the same adoption, or by an ordinary recovery. Consume queues and key index are then
built anew from the log, which stays as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rocketmq_arrow.decode.boundaries import MAGIC_V1, MAGIC_V2
from rocketmq_arrow.decode.layout import CRC_AT, CRC_MASK, PHYSICAL_OFFSET_AT, Layout, read_layout
from rocketmq_broker.storage.adoption.rocketmq_queues import RocketMQQueue, rocketmq_queues
from rocketmq_broker.storage.adoption.rocketmq_timers import adopt_timers
from rocketmq_broker.storage.disk.checksum import crc32
from rocketmq_broker.storage.disk.config_files import CONFIG_DIRECTORY, TOPIC_TABLE, TOPICS, Configs
from rocketmq_broker.storage.disk.files import File, Files, join, write_file
from rocketmq_broker.storage.errors import DamagedStoreError, MissingFileError, StorageError
from rocketmq_broker.storage.log.durable_mark import MARK_NAME, Mark, MarkFile, write_first_mark
from rocketmq_broker.storage.log.log_checksums import LOG_CHECKSUMS_NAME, LogChecksum
from rocketmq_broker.storage.log.scan import RECORD_HEAD, Bytes, Scanned, chain, columns_of
from rocketmq_broker.storage.log.segment import LOG_DIRECTORY, Segment, segment_name
from rocketmq_broker.storage.queues.consume_queue import ENTRY, QUEUE_DIRECTORY
from rocketmq_broker.storage.queues.derived import DERIVED_NAME, Derived, save_derived
from rocketmq_broker.storage.settings import Adoption, StoreConfig
from rocketmq_wire.model import Bounds

_ROWS_PER_CHUNK: Final = 16_384
_POSITION: Final = struct.Struct(">q")
_ROCKSDB_TOPICS: Final = "topics"
_LOCK_WORD: Final = b"lock"

QueueKey = tuple[str, int]


def is_written_by_rocketmq(files: Files, *, has_lock_word: bool) -> bool:
    """True if RocketMQ itself made this store, or had it open since we closed it."""
    if not any(name.isdecimal() for name in files.names(LOG_DIRECTORY)):
        return False
    # Our own store has these two from its first moment on: one that lost its mark is damaged.
    has_own_files = {MARK_NAME, DERIVED_NAME} & set(files.names(""))
    return has_lock_word or not has_own_files


def adopt(files: Files, config: StoreConfig, lock: File, *, was_clean: bool) -> Adoption:
    """Verify a foreign store and write its mark. The caller empties `lock` afterwards.

    Raises:
        DamagedStoreError: the log is not what RocketMQ's queues, or our older mark, say.
        StorageError: it is a kind of store that cannot be read.
    """
    return _Adoption(files, config, lock, was_clean=was_clean).run()


@dataclass(slots=True)
class _Found:
    """One queue, by the records of the log."""

    first: int
    next: int


@dataclass(slots=True)
class _Dead:
    """Records of topics that were deleted: they are in the log, and in no queue."""

    before: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


class _Adoption:
    def __init__(self, files: Files, config: StoreConfig, lock: File, *, was_clean: bool) -> None:
        self._files, self._config, self._was_clean = files, config, was_clean
        self._lock = lock
        self._configs = Configs(files)
        self._old_mark = _old_mark(files)
        self._bases = sorted(int(name) for name in files.names(LOG_DIRECTORY) if name.isdecimal())
        self._size = self._segment_size()
        self._segments: dict[int, Segment] = {}
        self._found: dict[QueueKey, _Found] = {}
        self._record_count = self._torn_count = 0

    def run(self) -> Adoption:
        start = self._bases[0]
        topics = self._living_topics()
        queues = rocketmq_queues(self._files, log_start=start)
        try:
            self._open_segments()
            dead = _Dead(dict(self._configs.dead_before))
            for queue in queues.values():
                if queue.first_position >= 0:
                    known = dead.before.get(queue.topic, queue.first_position)
                    dead.before[queue.topic] = min(known, queue.first_position)
            listed = {queue.topic for queue in queues.values() if queue.end} | topics
            end = self._read_log(dead, listed)
            self._compare_queues(queues, end)
            self._write(queues, dead, start, end)
        finally:
            for segment in self._segments.values():
                segment.close()
        return Adoption(
            log_start=start,
            log_end=end,
            records=self._record_count,
            queues=len(self._found),
            dead_records=dead.counts,
            torn_records=self._torn_count,
        )

    # --- looking ------------------------------------------------------------------------------

    def _segment_size(self) -> int:
        """All of RocketMQ's files of the log have one size; only the last one may be shorter."""
        if len(self._bases) > 1:
            size = self._bases[1] - self._bases[0]
        else:
            size = self._file_size(segment_name(self._bases[0]))
        for base, following in zip(self._bases, self._bases[1:], strict=False):
            if following - base != size:
                name = segment_name(base + size)
                raise DamagedStoreError(name, 0, "a file of the log is missing", size, 0)
        if size <= 0 or self._bases[0] % size:
            raise StorageError(segment_name(self._bases[0]), 0, "the log's files have no one size")
        return size

    def _open_segments(self) -> None:
        for base in self._bases:
            name = segment_name(base)
            file_size = self._file_size(name)
            if file_size != self._size and base != self._bases[-1]:
                reason = "the file is not as long as the log's other files"
                raise DamagedStoreError(name, file_size, reason, self._size, file_size)
            self._segments[base] = Segment(self._files, base, self._size, create=False)

    def _living_topics(self) -> set[str]:
        names = self._files.names(CONFIG_DIRECTORY)
        if TOPICS not in names and _ROCKSDB_TOPICS in names:
            reason = (
                "this broker keeps its topics in RocksDB, which cannot be read here: "
                "export them with `mqadmin rocksDBConfigToJson` first"
            )
            raise StorageError(join(CONFIG_DIRECTORY, _ROCKSDB_TOPICS), 0, reason)
        table = self._configs.load(TOPICS).get(TOPIC_TABLE)
        return set(table) if isinstance(table, dict) else set()

    def _read_log(self, dead: _Dead, listed: set[str]) -> int:
        """Read all sound records; returns where they end."""
        for base in self._bases:
            segment = self._segments[base]
            end = base
            for data, layout, end, is_sound in _stretches(segment):
                self._add(columns_of(layout, base, {}), dead, listed)
                if not is_sound:
                    self._compare_end(end)
                    return end
                del data
            if end < segment.end:
                self._compare_end(end)
                return end
        end = self._bases[-1] + self._size
        self._compare_end(end)
        return end

    def _add(self, scanned: Scanned, dead: _Dead, listed: set[str]) -> None:
        for part in scanned.queues:
            positions = scanned.positions[part.rows]
            if part.topic in listed:
                is_living = positions >= dead.before.get(part.topic, 0)
            else:
                # Neither a topic nor a queue of this name is left.
                is_living = np.zeros(len(positions), np.bool_)
                dead.before[part.topic] = max(
                    dead.before.get(part.topic, 0), int(positions[-1]) + 1
                )
            offsets = part.offsets[is_living]
            dead_count = len(positions) - len(offsets)
            if dead_count:
                dead.counts[part.topic] = dead.counts.get(part.topic, 0) + dead_count
            if not len(offsets):
                continue
            first = int(offsets[0])
            found = self._found.setdefault((part.topic, part.queue_index), _Found(first, first))
            wrong = np.flatnonzero(offsets != found.next + np.arange(len(offsets)))
            if len(wrong):
                at = int(positions[is_living][wrong[0]])
                base = at - at % self._size
                reason = (
                    f"the record of {part.topic}/{part.queue_index} does not go on where its "
                    f"queue ends"
                )
                raise DamagedStoreError(
                    segment_name(base),
                    at - base,
                    reason,
                    found.next + int(wrong[0]),
                    int(offsets[wrong[0]]),
                )
            found.next += len(offsets)
            self._record_count += len(offsets)

    def _compare_end(self, end: int) -> None:
        """The log ends here. Nothing may speak of more, unless a crash cut the log short."""
        base = end - end % self._size
        old = self._old_mark
        if old is not None and end < old.end:
            reason = "the log ends before what was acknowledged while we had this store"
            raise DamagedStoreError(segment_name(base), end - base, reason, old.end, end)
        for later in self._bases:
            if later > end and self._is_record(later):
                reason = "the log is damaged here, and goes on in a later file"
                raise DamagedStoreError(segment_name(base), end - base, reason, later, end)

    def _compare_queues(self, queues: Mapping[QueueKey, RocketMQQueue], end: int) -> None:
        """Every entry of RocketMQ's queues must have its record."""
        for key, queue in queues.items():
            beyond = queue.positions_from(end)
            self._torn_count += len(beyond)
            at = next((position for position in beyond if self._is_record(position)), None)
            if at is None and len(beyond) and self._was_clean:
                at = int(beyond[0])
            if at is not None:
                base = end - end % self._size
                reason = f"the log is damaged here, and {key[0]}/{key[1]} has messages behind it"
                raise DamagedStoreError(segment_name(base), end - base, reason, at, end)
            listed_end = queue.end - len(beyond)
            found = self._found.get(key)
            # Without a record of it in the log, all that the queue lists has expired.
            if found is None:
                has_lost = queue.first_position >= 0 and len(beyond) < queue.living_count
            else:
                has_lost = found.next < listed_end
            if has_lost:
                reason = f"the log has not all messages that {key[0]}/{key[1]} lists"
                found_end = found.next if found is not None else 0
                name = join(QUEUE_DIRECTORY, key[0], str(key[1]))
                raise DamagedStoreError(
                    name, listed_end * ENTRY.itemsize, reason, listed_end, found_end
                )

    def _is_record(self, position: int) -> bool:
        segment = self._segments.get(position - position % self._size)
        if segment is None or segment.end - position < RECORD_HEAD.size + PHYSICAL_OFFSET_AT:
            return False
        begin = position - segment.start
        _, magic = RECORD_HEAD.unpack_from(segment.view, begin)
        (written,) = _POSITION.unpack_from(segment.view, begin + PHYSICAL_OFFSET_AT)
        return magic in (MAGIC_V1, MAGIC_V2) and written == position

    # --- writing ------------------------------------------------------------------------------

    def _write(
        self, queues: Mapping[QueueKey, RocketMQQueue], dead: _Dead, start: int, end: int
    ) -> None:
        self._note_visit()
        needed = {topic: dead.before[topic] for topic in dead.counts}
        kept = {
            topic: position
            for topic, position in self._configs.dead_before.items()
            if topic not in needed
        }
        self._configs.set_dead({**kept, **needed})
        adopt_timers(self._files, self._configs)
        self._configs.adopt_lmq_offsets()
        self._files.unlink(DERIVED_NAME)
        self._files.sync_directory("")
        for segment in self._segments.values():
            if segment.start < end:
                segment.sync()
        self._files.sync_directory(LOG_DIRECTORY)
        seals = b"".join(seal.encode() for seal in self._seals(start, end))
        write_file(self._files, LOG_CHECKSUMS_NAME, seals)
        entries = next(
            (queue.entries_per_file for queue in queues.values() if queue.entries_per_file),
            self._config.queue_file_entries,
        )
        mark = Mark(
            end=end,
            log_start=start,
            anchor=end,
            checksum=0,
            segment_size=self._size,
            queue_file_entries=entries,
        )
        write_first_mark(self._files, mark)
        ends = {key: found.first for key, found in self._found.items() if found.first}
        for key, queue in queues.items():
            if key not in self._found and queue.end:
                # All its messages have expired, but its next offset stays what it was.
                ends[key] = queue.end - len(queue.positions_from(end))
        bounds = {key: Bounds(offset, offset) for key, offset in ends.items() if offset}
        save_derived(self._files, Derived(position=start, bounds=bounds))

    def _note_visit(self) -> None:
        """Have a crash in what follows lead here again.

        RocketMQ's word in the lock file does that. A directory that came without the file, out of
        a backup say, would pass for our own as soon as it has a mark, which alone does not say
        where queues go on whose messages have all expired.
        """
        if self._lock.size() == 0:
            self._lock.pwrite(_LOCK_WORD, 0)
            self._lock.sync()

    def _seals(self, start: int, end: int) -> Iterator[LogChecksum]:
        position = start
        while position < end:
            segment = self._segments[position - position % self._size]
            stop = min(segment.end, end, position + self._config.checksum_range_size)
            data = segment.view[position - segment.start : stop - segment.start]
            yield LogChecksum(position, stop, crc32(data, 0))
            position = stop

    def _file_size(self, name: str) -> int:
        file = self._files.open(name)
        try:
            return file.size()
        finally:
            file.close()


def _old_mark(files: Files) -> Mark | None:
    try:
        mark_file = MarkFile(files)
    except MissingFileError:
        return None
    mark_file.close()
    return mark_file.mark


def _stretches(segment: Segment) -> Iterator[tuple[Bytes, Layout, int, bool]]:
    """The sound records of a file, some thousand at a time: their columns, and where they end.

    The last value is False where damage follows. After a filler the end is the file's.
    """
    data, position = segment.bytes, 0
    while True:
        starts, end, is_full = chain(data, position, _ROWS_PER_CHUNK)
        sizes = np.diff(starts, append=end)
        layout, damaged = read_layout(data, starts, sizes, None)
        count = int(damaged[0]) if len(damaged) else len(starts)
        if len(damaged):
            layout, _ = read_layout(data, starts[:count], sizes[:count], None)
        sound_count = _sound_count(layout, segment.start)
        if sound_count < len(starts):
            layout, _ = read_layout(data, starts[:sound_count], sizes[:sound_count], None)
            yield data, layout, segment.start + int(starts[sound_count]), False
            return
        yield data, layout, segment.end if is_full else segment.start + end, True
        if is_full or len(starts) < _ROWS_PER_CHUNK:
            return
        position = end


def _sound_count(layout: Layout, base: int) -> int:
    """How many records, up to the first that is of another position or has a damaged body."""
    wrong = np.flatnonzero(layout.int64(PHYSICAL_OFFSET_AT) != layout.starts + base)
    count = int(wrong[0]) if len(wrong) else len(layout.starts)
    checksums = (layout.int32(CRC_AT) & CRC_MASK).tolist()
    view = layout.data.data
    bodies = zip(layout.body_start[:count].tolist(), layout.body_end[:count].tolist(), strict=True)
    for row, (begin, end) in enumerate(bodies):
        if crc32(view[begin:end], 0) & CRC_MASK != checksums[row]:
            return row
    return count
