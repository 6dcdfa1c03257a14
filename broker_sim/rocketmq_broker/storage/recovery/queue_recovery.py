"""Consume queues of a start: read from their files as far as those are synced, or rebuilt."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Final

import numpy as np

from rocketmq_broker.storage.disk.files import Files, join
from rocketmq_broker.storage.log.commit_log import CommitLog
from rocketmq_broker.storage.log.scan import QueueRows, Scanned
from rocketmq_broker.storage.queues.consume_queue import (
    BLANK_ENTRY_SIZE,
    ENTRY,
    QUEUE_DIRECTORY,
    QueueIndex,
    QueueKey,
    blank_entries,
    make_entries,
    read_entries,
)
from rocketmq_broker.storage.queues.derived import Derived
from rocketmq_broker.storage.queues.lite_queues import queue_directories, served_topics
from rocketmq_broker.storage.queues.lost_messages import Holes
from rocketmq_broker.storage.queues.queue_table import QueueTable, remove_queue
from rocketmq_wire.model import Bounds

_HEAD_SIZE: Final = 28
"""Bytes of a record up to its queue offset, which an entry is compared with."""


class QueueRecovery:
    """Fills a queue table: first `adopt` or `discard`, then `add` all scanned records in order."""

    def __init__(
        self,
        files: Files,
        log: CommitLog,
        queues: QueueTable,
        dead_before: Mapping[str, int],
        holes: Holes,
    ) -> None:
        self._files = files
        self._log = log
        self._queues = queues
        self._dead_before = dead_before
        self._holes = holes
        self._is_rebuilt = False
        self._ends: dict[QueueKey, int] = {}

    def adopt(self, derived: Derived) -> bool:
        """Use the queues of a checkpoint; False if their files do not have its entries."""
        kept = self._living(derived)
        self._remove_queues(kept)
        for (topic, index), bounds in kept.items():
            queue = self._queues.get_or_create(topic, index)
            queue.start, queue.end, queue.next = bounds.start, bounds.end, bounds.end
            if not self._check(queue, derived.position):
                self._queues.forget()
                return False
        return True

    def known_ends(self, derived: Derived | None) -> dict[QueueKey, int]:
        """The known ends of queues, whose messages may have expired."""
        if derived is None:
            return self._ends_on_disk()
        return {key: bounds.end for key, bounds in self._living(derived).items()}

    def discard(self, ends: Mapping[QueueKey, int]) -> None:
        """Remove all queues but their known ends: the caller adds every record of the log."""
        self._is_rebuilt = True
        self._ends = dict(ends)
        self._queues.forget()
        self._remove_queues({})

    def following_count(self, scanned: Scanned) -> int:
        """Number of records before the first whose offset does not follow its queue's end."""
        count = len(scanned.positions)
        for part in scanned.queues:
            start, total = self._expected(part), len(part.offsets)
            expected = self._holes.offsets_from(part.topic, part.queue_index, start, total)
            wrong = np.flatnonzero(part.offsets != expected)
            if len(wrong):
                count = min(count, int(part.rows[wrong[0]]))
        return count

    def add(self, scanned: Scanned, count: int) -> None:
        """Add the first `count` records to their queues."""
        for part in scanned.queues:
            rows = part.rows[: int(np.searchsorted(part.rows, count))]
            offsets = part.offsets[: len(rows)]
            if not len(rows):
                continue
            first = int(offsets[0])
            queue = self._queues.get(part.topic, part.queue_index)
            if queue is None:
                queue = self._begin(part.topic, part.queue_index, first)
            entries = make_entries(
                scanned.positions[rows],
                scanned.sizes[rows].astype(np.int32),
                scanned.tag_hashes[rows],
            )
            for run in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(offsets) != 1) + 1):
                offset = int(offsets[run[0]])
                self._fill_holes(queue, offset)
                self._queues.write(queue, offset, [entries[run[0] : run[-1] + 1]])

    def finish(self, log_end: int) -> None:
        """Complete the queues' bounds and holes after the last record."""
        for (topic, index), end in self._ends.items():
            if self._queues.get(topic, index) is None:
                # All its messages have expired, but its next offset stays.
                queue = self._queues.get_or_create(topic, index)
                queue.start = queue.end = queue.next = end
        self._queues.published_end = log_end
        self._finish_holes()
        for queue in self._queues:
            if queue.start < queue.end and queue.position_of(queue.start) < self._log.start:
                queue.start = queue.first_at_or_after(self._log.start)

    def _begin(self, topic: str, index: int, first: int) -> QueueIndex:
        """Begin a queue at its first message, or at a hole right before that."""
        queue = self._queues.get_or_create(topic, index)
        for hole in reversed(self._holes.of(topic, index)):
            if hole.end == first:
                first = hole.start
        self._fill_before(queue, first)
        queue.start = queue.end = queue.next = first
        return queue

    def _fill_holes(self, queue: QueueIndex, end: int) -> None:
        """Write blank entries for lost messages up to an offset."""
        while queue.next < end:
            hole = self._holes.at(queue.topic, queue.index, queue.next)
            assert hole is not None, f"{queue.topic}/{queue.index} has no offset {queue.next}"
            count = min(hole.end, end) - queue.next
            self._queues.write(queue, queue.next, [blank_entries(count, hole.position)])

    def _finish_holes(self) -> None:
        """Write entries for messages lost behind a queue's last message, too."""
        for topic, index in self._holes.queues:
            holes = self._holes.of(topic, index)
            queue = self._queues.get(topic, index)
            if queue is None or queue.start == queue.end:
                queue = self._begin(topic, index, holes[0].start)
            for hole in holes:
                if hole.start <= queue.next < hole.end:
                    self._fill_holes(queue, hole.end)
            queue.holes = tuple(Bounds(hole.start, hole.end) for hole in holes)

    def _fill_before(self, queue: QueueIndex, first: int) -> None:
        """Write blank entries before a queue's first message: RocketMQ takes zeros as its end."""
        count = first % self._queues.entries_per_file
        if count:
            self._queues.write(queue, first - count, [blank_entries(count, 0)])

    def _living(self, derived: Derived) -> dict[QueueKey, Bounds]:
        """A checkpoint's queues, without topics deleted later: their records are behind it."""
        return {
            (topic, index): bounds
            for (topic, index), bounds in derived.bounds.items()
            if self._dead_before.get(topic, -1) < derived.position
        }

    def _expected(self, part: QueueRows) -> int:
        """The offset of the first record if it follows the end of its queue."""
        queue = self._queues.get(part.topic, part.queue_index)
        if queue is not None:
            return queue.next
        # In a rebuild, older messages may have expired; else a new queue begins at 0.
        return int(part.offsets[0]) if self._is_rebuilt else 0

    def _check(self, queue: QueueIndex, position: int) -> bool:
        """Clear the files behind the queue's end, and compare its last entry with the record."""
        last_name = queue.file_name(queue.end - 1)
        paths = {join(queue.directory, name) for name in self._files.names(queue.directory)}
        for path in paths:
            if path > last_name:
                self._files.unlink(path)
        step = self._queues.entries_per_file
        first = min(queue.start, queue.end - 1)
        needed = range(first - first % step, queue.end, step)
        if not paths.issuperset(map(queue.file_name, needed)):
            return False
        with closing(self._files.open(last_name)) as file:
            used = (queue.end - 1) % self._queues.entries_per_file + 1
            if file.size() < used * ENTRY.itemsize:
                return False
            file.resize(used * ENTRY.itemsize)
            file.resize(self._queues.entries_per_file * ENTRY.itemsize)
        self._queues.open_files.dirty.add(last_name)
        return self._is_entry_of(queue, queue.end - 1, position)

    def _is_entry_of(self, queue: QueueIndex, offset: int, position: int) -> bool:
        entry = queue.read(offset, offset + 1)[0]
        at, size = int(entry["position"]), int(entry["size"])
        if at < self._log.start:
            return size > 0
        if (
            size == BLANK_ENTRY_SIZE
            and self._holes.at(queue.topic, queue.index, offset) is not None
        ):
            return at < position
        if not size > 0 or at + size > position:
            return False
        try:
            head = self._log.view(at, _HEAD_SIZE)
        except KeyError:
            return False
        return (
            int.from_bytes(head[0:4], "big") == size
            and int.from_bytes(head[12:16], "big") == queue.index
            and int.from_bytes(head[20:28], "big") == offset
        )

    def _ends_on_disk(self) -> dict[QueueKey, int]:
        """The ends of expired messages in the queues' files, for a store without a checkpoint."""
        ends = {}
        for key, directory in queue_directories(self._files):
            if key[0] not in self._dead_before:
                for first, entries in read_entries(self._files, directory):
                    is_expired = (entries["size"] > 0) & (entries["position"] < self._log.start)
                    expired = np.flatnonzero(is_expired)
                    if len(expired):
                        ends[key] = first + int(expired[-1]) + 1
        return ends

    def _remove_queues(self, kept: Mapping[QueueKey, Bounds]) -> None:
        """Remove all names in the topics' directories but those of the kept queues."""
        for topic in served_topics(self._files):
            for name in self._files.names(join(QUEUE_DIRECTORY, topic)):
                if not name.isdecimal() or (topic, int(name)) not in kept:
                    self._remove(topic, name)

    def _remove(self, topic: str, name: str) -> None:
        directory = join(QUEUE_DIRECTORY, topic, name)
        self._queues.open_files.close_below(directory)
        remove_queue(self._files, directory)
        self._queues.dirty_directories.update((QUEUE_DIRECTORY, join(QUEUE_DIRECTORY, topic)))
