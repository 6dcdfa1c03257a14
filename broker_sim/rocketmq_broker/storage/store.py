"""The broker's store: appends blocks of records to the log, and reads them by queue.

One thread (the loop) appends, publishes and reads. One worker thread at a time calls `sync`, and
one calls `index_step`, `checkpoint`, `clean` and `verify_step`. In sync mode only durable records
become visible:

    append -> (log, not visible) -> sync -> (durable, marked) -> publish -> (in its consume queue)
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rocketmq_arrow.kernels.gather import Positions
from rocketmq_broker.storage.disk.files import File, Files
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.keys.key_index import index_hash
from rocketmq_broker.storage.log.blank_records import is_blank
from rocketmq_broker.storage.log.commit_log import FILLER, LOG_DIRECTORY
from rocketmq_broker.storage.log.reading import ReadResult, gather, select
from rocketmq_broker.storage.log.verification import UnverifiedLog
from rocketmq_broker.storage.maintenance import Maintenance, record_store_ms
from rocketmq_broker.storage.queues.consume_queue import QueueIndex, entry_hashes, make_entries
from rocketmq_broker.storage.recovery.recover import (
    ABORT_NAME,
    LOCK_NAME,
    Recovered,
    recover,
)
from rocketmq_broker.storage.settings import (
    Appended,
    Arrival,
    CleanReport,
    FlushMode,
    StoreConfig,
)
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerBusyError
from rocketmq_wire.model import Bounds, Host
from rocketmq_wire.records.record import RECORD_SIZE_MIN
from rocketmq_wire.requests.offsets import Boundary


class Block(Protocol):
    """Encoded records back to back, which the store completes in place. The first is at byte 0."""

    @property
    def buffer(self) -> npt.NDArray[np.uint8]: ...
    @property
    def starts(self) -> npt.NDArray[np.int64]: ...
    @property
    def sizes(self) -> npt.NDArray[np.int32]: ...
    @property
    def tag_hashes(self) -> npt.NDArray[np.int64]: ...

    def piece(self, start: int, end: int) -> Block:
        """The records `[start, end)` as a block over the same buffer."""

    def patch(
        self,
        queue_index: int | Positions,
        queue_offset: int | Positions,
        physical_start: int,
        store_ms: int,
        store_host: Host,
    ) -> None:
        """Write the fields that only the broker knows into every record.

        One queue offset is the first record's, and the next ones count on from it.
        """


class Store:
    """An open store. `Store.open` recovers it; after `close` the next opening is quick."""

    def __init__(
        self, files: Files, config: StoreConfig, lock: File, parts: Recovered, now_ms: int
    ) -> None:
        self.configs = parts.configs
        self.report = parts.report
        self._files = files
        self._config = config
        self._lock_file = lock
        self._log = parts.log
        self._queues = parts.queues
        self._durability = parts.durability
        self._index = parts.index
        self._store_ms = max(now_ms, parts.store_ms)
        # Guards the tables against the worker threads. No thread waits for the disk with it.
        self._lock = threading.RLock()
        self._maintenance = Maintenance(files, config, parts, self._lock)
        self._unverified = UnverifiedLog(self._log, parts.unverified)

    @classmethod
    def open(cls, files: Files, config: StoreConfig, now_ms: int) -> Store:
        """Open a store, and recover it after a crash.

        Raises:
            StoreLockedError: another broker has it open.
            DamagedStoreError: acknowledged data is damaged.
        """
        lock = files.lock(LOCK_NAME)
        try:
            recovered = recover(files, config, lock)
        except BaseException:
            lock.close()
            raise
        return cls(files, config, lock, recovered, now_ms)

    @property
    def durable_end(self) -> int:
        """Log position up to which everything is on the disk; in memory, the log's end."""
        return self._durability.end

    @property
    def appended_end(self) -> int:
        """Log position behind the last record, durable or not."""
        return self._log.end

    @property
    def log_start(self) -> int:
        """Log position of the oldest record that is kept."""
        return self._log.start

    @property
    def disk_used_ratio(self) -> float:
        return self._files.disk_used_ratio()

    def earliest_ms(self) -> int:
        """Store time of the log's oldest message; -1 if there is none."""
        with self._lock:
            start = self._log.start
            return record_store_ms(self._log, start) if self.record_at(start) is not None else -1

    @property
    def newest_ms(self) -> int:
        """The last store time; later messages have no earlier one."""
        return self._store_ms

    def append(self, topic: str, queue_index: int, block: Block, now_ms: int) -> Appended:
        """Write a block to the log; `publish` makes it visible.

        Raises:
            BrokerBusyError: too many bytes wait for the disk; nothing was stored.
            StorageError: the disk refused. Of a block that spans files a part may be stored.
        """
        with self._lock:
            self._check_room(block)
            # The clock may step back, but searches by time need ascending store times.
            self._store_ms = max(now_ms, self._store_ms)
            queue = self._queues.get_or_create(topic, queue_index)
            offset = queue.next
            start, count = offset, len(block.sizes)
            pieces: list[tuple[int, int]] = []
            while offset - start < count:
                taken = self._fitting(block, offset - start)
                if taken == 0:
                    self._log.roll()
                    continue
                is_whole = taken == count
                piece = block if is_whole else block.piece(offset - start, offset - start + taken)
                position = self._log.end
                piece.patch(queue_index, offset, position, self._store_ms, self._config.store_host)
                self._log.append(piece.buffer.data)
                hashes = entry_hashes(topic, queue_index, self._store_ms, piece.tag_hashes)
                entries = make_entries(piece.starts + position, piece.sizes, hashes)
                self._queues.append(queue, offset, entries, self._log.end)
                pieces.append((offset - start, position))
                offset += taken
                queue.next = offset
            return Appended(start, count, pieces[0][1], self._log.end, tuple(pieces))

    def append_parts(
        self, topic: str, block: Block, parts: Sequence[tuple[int, int]], now_ms: int
    ) -> list[Appended] | None:
        """Write a block whose records belong to several queues; `parts` has (queue, count) pairs.

        Returns None, and writes nothing, if the block does not fit in the current file of the log:
        then append its parts one by one. Against one append for each part, one write for all takes
        a third less time with batches of 1,000 messages, and a tenth of it with batches of 32.

        Raises:
            BrokerBusyError: too many bytes wait for the disk; nothing was stored.
            StorageError: the disk refused; nothing was stored.
        """
        with self._lock:
            self._check_room(block)
            if len(block.buffer) > self._log.room():
                return None
            self._store_ms = max(now_ms, self._store_ms)
            counts = [count for _, count in parts]
            ends = np.cumsum(counts)
            queues = [self._queues.get_or_create(topic, index) for index, _ in parts]
            following: dict[QueueIndex, int] = {}
            first_offsets = []
            for queue, count in zip(queues, counts, strict=True):
                first = following.get(queue, queue.next)
                first_offsets.append(first)
                following[queue] = first + count
            shifts = np.array(first_offsets, np.int64) - ends + counts
            offsets = np.arange(ends[-1]) + np.repeat(shifts, counts)
            indices = np.repeat(np.array([index for index, _ in parts], np.int64), counts)
            position = self._log.end
            block.patch(indices, offsets, position, self._store_ms, self._config.store_host)
            self._log.append(block.buffer.data)
            hashes = entry_hashes(topic, indices, self._store_ms, block.tag_hashes)
            entries = make_entries(block.starts + position, block.sizes, hashes)
            appended = []
            bounds = [*block.starts.tolist(), len(block.buffer)]
            for queue, first, count, end in zip(
                queues, first_offsets, counts, ends.tolist(), strict=True
            ):
                begin, stop = position + bounds[end - count], position + bounds[end]
                self._queues.append(queue, first, entries[end - count : end], stop)
                queue.next = first + count
                appended.append(Appended(first, count, begin, stop, ((0, begin),)))
            return appended

    def sync(self) -> int:
        """Make everything appended so far durable; returns the durable end. Blocks."""
        return self._durability.sync()

    def publish(self) -> list[Arrival]:
        """Make durable records visible; in async and memory mode, all records."""
        is_sync = self._config.flush is FlushMode.SYNC
        with self._lock:
            return self._queues.publish(self._durability.end if is_sync else self._log.end)

    def bounds(self, topic: str, queue_index: int) -> Bounds:
        queue = self._queues.get(topic, queue_index)
        return Bounds(0, 0) if queue is None else Bounds(queue.start, queue.end)

    def read(
        self,
        topic: str,
        queue_index: int,
        start: int,
        *,
        count_max: int,
        bytes_max: int,
        tag_hashes: npt.NDArray[np.int64] | None = None,
        scan_max: int = 16_000,
        stops_at_file_end: bool = False,
    ) -> ReadResult:
        """Read records from an offset on; none if it is outside the bounds.

        Without `tag_hashes` every record matches. A filtered read scans at most `scan_max` entries.
        With `stops_at_file_end` a read ends with its queue's file, as in RocketMQ.

        Raises DamagedStoreError: the first record is in a range that `verify_step` found damaged.
        """
        with self._lock:
            queue = self._queues.get(topic, queue_index)
            if queue is None or not queue.start <= start < queue.end or count_max < 1:
                return ReadResult(parts=(), sizes=b"", count=0, next_begin=start)
            if tag_hashes is None:
                # Records have a minimum size, so the byte limit also limits the entries.
                wanted = min(count_max, bytes_max // RECORD_SIZE_MIN + 1)
            else:
                wanted = max(scan_max, 1)
            if stops_at_file_end:
                wanted = min(wanted, queue.left_in_file(start))
            end = min(start + wanted, queue.end)
            if queue.holes:
                # A read that begins in a hole returns nothing else, so that no reader misses it.
                hole_end = queue.hole_end(start)
                if hole_end is not None:
                    return ReadResult((), b"", 0, hole_end, lost=hole_end - start)
                end = queue.end_before_hole(start, end)
            entries = self._unverified.intact(queue.read(start, end))
            selection = select(
                entries, count_max=count_max, bytes_max=bytes_max, tag_hashes=tag_hashes
            )
            parts = gather(self._log, selection.positions, selection.sizes)
        return ReadResult(
            parts=parts,
            sizes=selection.sizes.astype("<i4", copy=False).tobytes(),
            count=len(selection.sizes),
            next_begin=start + selection.scanned,
        )

    def search_time(
        self, topic: str, queue_index: int, timestamp_ms: int, boundary: Boundary
    ) -> int:
        """LOWER: the first offset stored at or after a time, else the queue's end. UPPER: the last
        offset stored at or before it. The result is never outside the bounds.
        """
        with self._lock:
            queue = self._queues.get(topic, queue_index)
            if queue is None:
                return 0
            # LOWER is the first message that is not older; UPPER is before the first newer one.
            limit_ms = timestamp_ms if boundary is Boundary.LOWER else timestamp_ms + 1
            store_ms_of = partial(self._store_ms_of, queue)
            offsets = range(queue.start, queue.end)
            found = queue.start + bisect_left(offsets, limit_ms, key=store_ms_of)
            if boundary is Boundary.UPPER:
                return max(found - 1, queue.start)
            return found

    def store_time(self, topic: str, queue_index: int, offset: int) -> int:
        """The store time of a message; -1 if there is no message at this offset."""
        with self._lock:
            queue = self._queues.get(topic, queue_index)
            if queue is None or not queue.start <= offset < queue.end:
                return -1
            if queue.hole_end(offset) is not None:
                return -1
            return self._store_ms_of(queue, offset)

    def record_at(self, position: int) -> memoryview | None:
        """The published record that begins at a log position; None if none does."""
        with self._lock:
            if not self._log.start <= position <= self._queues.published_end - RECORD_SIZE_MIN:
                return None
            segment = self._log.segment_at(position)
            size = segment.record_size(position) if segment is not None else None
            if segment is None or size is None:
                return None
            if not RECORD_SIZE_MIN <= size <= segment.end - position:
                return None
            self._unverified.require(position)
            record = self._log.view(position, size)
            return None if is_blank(record) else record

    def query_index(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> list[int]:
        """Log positions of messages that may have a key, newest first.

        Hashes collide, so the caller compares the keys. The newest messages may not be in the
        index yet.
        """
        with self._lock:
            found = self._index.query(
                index_hash(topic, key), count_max=count_max, begin_ms=begin_ms, end_ms=end_ms
            )
            start = max(self._log.start, self.configs.dead_before.get(topic, 0))
            return [position for position in found if position >= start]

    def delete_topic(self, *topics: str) -> None:
        """Delete topics' messages, their entries in `topics.json`, and committed offsets, durably.

        A later topic of this name begins at offset 0. The old messages do not come back after a
        crash: `topics.json` has the log position before which they are dead.

        Raises StorageError: the disk refused, and nothing was deleted.
        """
        with self._lock:
            self.configs.delete_topics(topics, self._log.end)
            self._queues.remove_topics(topics)

    @property
    def index_lag(self) -> int:
        """Bytes of the log that are published and not in the key index yet."""
        return self._queues.published_end - self.index_end

    @property
    def index_end(self) -> int:
        """Log position up to which the keys are in the index."""
        return max(self._maintenance.index_position, self._log.start)

    def index_step(self) -> bool:
        """Add some published records to the key index; True if there are more."""
        return self._maintenance.index_step()

    def verify_step(self) -> int:
        """Compare a range of acknowledged log with its checksum; returns its size, 0 at the end.

        Raises DamagedStoreError: the range is damaged, and reads of it fail from now on.
        """
        return self._unverified.verify_step()

    def checkpoint(self) -> bool:
        """Bring queues and index to the disk, so that the next start reads less of the log.

        Returns False if nothing changed. The shell calls it about once a second.
        """
        return self._maintenance.checkpoint(self._store_ms)

    def clean(self, now_ms: int) -> CleanReport:
        """Delete expired files of the log, and older ones if the disk is too full."""
        return self._maintenance.clean(now_ms, self._store_ms)

    def close(self) -> None:
        """Make everything durable and close, so that the next opening has nothing to recover.

        Raises StorageError if the disk refuses: then the store is closed as after a crash.
        """
        with self._lock:
            try:
                if not self._config.is_memory:
                    self._flush()
            finally:
                self._queues.close()
                self._log.close()
                self._durability.close()
                self._lock_file.close()

    def _flush(self) -> None:
        """Bring everything to the disk; the removed `abort` file marks the store as closed."""
        self.sync()
        self.publish()
        self._index.flush()
        self._maintenance.checkpoint(self._store_ms)
        self._durability.repeat_mark()
        self._files.unlink(ABORT_NAME)
        self._files.sync_directory("")

    def _check_room(self, block: Block) -> None:
        record_size_max = self._log.segment_size - FILLER.size
        if len(block.buffer) > record_size_max and int(block.sizes.max()) > record_size_max:
            reason = f"a record of {block.sizes.max()} bytes does not fit in a file"
            raise StorageError(LOG_DIRECTORY, self._log.end, reason)
        waiting = self._log.end - self._queues.published_end
        if waiting and waiting + len(block.buffer) > self._config.unpublished_size_max:
            raise BrokerBusyError(
                ResponseCode.SYSTEM_BUSY,
                f"[STORE_BUSY] {waiting} bytes wait for the disk; send again later",
            )

    def _fitting(self, block: Block, first: int) -> int:
        """Number of records from `first` on that fit in the current file of the log."""
        room = self._log.room()
        if first == 0 and len(block.buffer) <= room:
            return len(block.sizes)
        ends = block.starts[first:] + block.sizes[first:] - block.starts[first]
        if ends[-1] <= room:
            return len(ends)
        return int(np.searchsorted(ends, room, side="right"))

    def _store_ms_of(self, queue: QueueIndex, offset: int) -> int:
        position = queue.position_of(offset)
        self._unverified.require(position)
        return record_store_ms(self._log, position)
