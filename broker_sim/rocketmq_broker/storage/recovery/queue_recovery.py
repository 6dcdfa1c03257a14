"""Consume queues of a start: read from their files as far as those are synced, or rebuilt."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rocketmq_broker.storage.disk.files import Files, join
from rocketmq_broker.storage.errors import DamagedStoreError
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

_LOG = logging.getLogger(__name__)
_HEAD_SIZE: Final = 28
"""Bytes of a record up to its queue offset, which an entry is compared with."""


class VoidDeletionError(Exception):
    """A topic's records continue behind its deletion: it was not deleted."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic


@dataclass(slots=True)
class QueueRecovery:
    """Fills a queue table: first `adopt` or `discard`, then `add` all scanned records in order."""

    files: Files
    log: CommitLog
    queues: QueueTable
    dead_before: Mapping[str, int]
    holes: Holes
    verified_size: int
    """Bytes of queues that are compared with their checksums; reads compare the others."""
    void_topics: set[str] = field(default_factory=set)
    """Topics whose adopted queues begin before their deletion, which was not completed."""
    _is_rebuilt: bool = False
    _dead_ends: dict[QueueKey, int] = field(default_factory=dict)
    """The ends of the queues of deleted topics."""
    _ends: dict[QueueKey, int] = field(default_factory=dict)

    def adopt(self, derived: Derived) -> bool:
        """Use the queues of a checkpoint; False if their files do not have its entries."""
        kept = self._living(derived)
        self._remove_queues(kept)
        for (topic, index), bounds in kept.items():
            queue = self.queues.get_or_create(topic, index)
            queue.start, queue.end, queue.next = bounds.start, bounds.end, bounds.end
            try:
                is_sound = self._check(queue, derived.position) and queue.expect(
                    derived.checksums.get((topic, index), ())
                )
                if is_sound:
                    self._verify(queue)
            except DamagedStoreError as error:
                _LOG.warning("%s The queues are rebuilt from the log", error)
                is_sound = False
            if not is_sound:
                self.queues.forget()
                return False
        return True

    def _verify(self, queue: QueueIndex) -> None:
        """Compare the newest files and the first one with their checksums.

        Raises DamagedStoreError.
        """
        for name in sorted(queue.unverified, reverse=True):
            if self.verified_size > 0:
                self.verified_size -= queue.verify(name)
        dead_before = self.dead_before.get(queue.topic, 0)
        if queue.start < queue.end and queue.position_of(queue.start) < dead_before:
            self.void_topics.add(queue.topic)

    def known_ends(self, derived: Derived | None) -> dict[QueueKey, Bounds]:
        """The known ends of queues, whose messages may have expired, as empty bounds."""
        if derived is None:
            return self._ends_on_disk()
        return {key: Bounds(bounds.end, bounds.end) for key, bounds in derived.bounds.items()}

    def discard(self, known: Derived) -> None:
        """Remove all queues but their known ends: the caller adds every record of the log."""
        self._is_rebuilt = True
        self._ends = {key: bounds.end for key, bounds in self._living(known).items()}
        self.queues.forget()
        self._remove_queues({})

    def _living(self, derived: Derived) -> dict[QueueKey, Bounds]:
        kept = derived.living(self.dead_before)
        self._dead_ends = {
            key: bounds.end for key, bounds in derived.bounds.items() if key not in kept
        }
        return kept

    def following_count(self, scanned: Scanned) -> int:
        """Number of records before the first whose offset does not follow its queue's end.

        Raises VoidDeletionError.
        """
        count = len(scanned.positions)
        self._dead_ends.update(scanned.dead_ends)
        for part in scanned.queues:
            queue = self.queues.get(part.topic, part.queue_index)
            if queue is None and self._outlives_deletion(part):
                raise VoidDeletionError(part.topic)
            # In a rebuild, older messages may have expired; else a new queue begins at 0.
            start = int(part.offsets[0]) if self._is_rebuilt else 0
            start = start if queue is None else queue.next
            expected = self.holes.offsets_from(
                part.topic, part.queue_index, start, len(part.offsets)
            )
            wrong = np.flatnonzero(part.offsets != expected)
            if len(wrong):
                count = min(count, int(part.rows[wrong[0]]))
        return count

    def _outlives_deletion(self, part: QueueRows) -> bool:
        """True if a queue's first record continues those before its deletion."""
        key, first = (part.topic, part.queue_index), int(part.offsets[0])
        if key not in self._dead_ends:
            return False
        begin, following = (
            int(self.holes.offsets_from(*key, start, 1)[0]) for start in (0, self._dead_ends[key])
        )
        return first == following != begin

    def add(self, scanned: Scanned, count: int) -> None:
        """Add the first `count` records to their queues."""
        for part in scanned.queues:
            rows = part.rows[: int(np.searchsorted(part.rows, count))]
            offsets = part.offsets[: len(rows)]
            if not len(rows):
                continue
            first = int(offsets[0])
            queue = self.queues.get(part.topic, part.queue_index)
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
                self.queues.write(queue, offset, [entries[run[0] : run[-1] + 1]])

    def finish(self, log_end: int) -> None:
        """Complete the queues' bounds and holes after the last record."""
        for (topic, index), end in self._ends.items():
            if self.queues.get(topic, index) is None:
                # All its messages have expired, but its next offset stays.
                queue = self.queues.get_or_create(topic, index)
                queue.start = queue.end = queue.next = end
        self.queues.published_end = log_end
        self._finish_holes()
        for queue in self.queues:
            if queue.start < queue.end and queue.position_of(queue.start) < self.log.start:
                queue.start = queue.first_at_or_after(self.log.start)

    def _begin(self, topic: str, index: int, first: int) -> QueueIndex:
        """Begin a queue at its first message, or at a hole right before that."""
        queue = self.queues.get_or_create(topic, index)
        for hole in reversed(self.holes.of(topic, index)):
            if hole.end == first:
                first = hole.start
        count = first % self.queues.entries_per_file
        if count:
            # RocketMQ takes zeros before a queue's first message as its end.
            self.queues.write(queue, first - count, [blank_entries(count, 0)])
        queue.start = queue.end = queue.next = first
        return queue

    def _fill_holes(self, queue: QueueIndex, end: int) -> None:
        """Write blank entries for lost messages up to an offset."""
        while queue.next < end:
            hole = self.holes.at(queue.topic, queue.index, queue.next)
            assert hole is not None, f"{queue.topic}/{queue.index} has no offset {queue.next}"
            count = min(hole.end, end) - queue.next
            self.queues.write(queue, queue.next, [blank_entries(count, hole.position)])

    def _finish_holes(self) -> None:
        """Write entries for messages lost behind a queue's last message, too."""
        for topic, index in self.holes.queues:
            holes = self.holes.of(topic, index)
            queue = self.queues.get(topic, index)
            if queue is None or queue.start == queue.end:
                queue = self._begin(topic, index, holes[0].start)
            for hole in holes:
                if hole.start <= queue.next < hole.end:
                    self._fill_holes(queue, hole.end)
            queue.holes = tuple(Bounds(hole.start, hole.end) for hole in holes)

    def _check(self, queue: QueueIndex, position: int) -> bool:
        """Clear the files behind the queue's end, and compare its last entry with the record."""
        last_name = queue.file_name(queue.end - 1)
        paths = {join(queue.directory, name) for name in self.files.names(queue.directory)}
        for path in paths:
            if path > last_name:
                self.files.unlink(path)
        step = self.queues.entries_per_file
        first = min(queue.start, queue.end - 1)
        needed = range(first - first % step, queue.end, step)
        if not paths.issuperset(map(queue.file_name, needed)):
            return False
        with closing(self.files.open(last_name)) as file:
            used = (queue.end - 1) % self.queues.entries_per_file + 1
            if file.size() < used * ENTRY.itemsize:
                return False
            file.resize(used * ENTRY.itemsize)
            file.resize(self.queues.entries_per_file * ENTRY.itemsize)
        self.queues.open_files.dirty.add(last_name)
        return self._is_entry_of(queue, queue.end - 1, position)

    def _is_entry_of(self, queue: QueueIndex, offset: int, position: int) -> bool:
        entry = queue.read(offset, offset + 1)[0]
        at, size = int(entry["position"]), int(entry["size"])
        if at < self.log.start:
            return size > 0
        if size == BLANK_ENTRY_SIZE and self.holes.at(queue.topic, queue.index, offset) is not None:
            return at < position
        if not size > 0 or at + size > position:
            return False
        try:
            head = self.log.view(at, _HEAD_SIZE)
        except KeyError:
            return False
        return (
            int.from_bytes(head[0:4], "big") == size
            and int.from_bytes(head[12:16], "big") == queue.index
            and int.from_bytes(head[20:28], "big") == offset
        )

    def _ends_on_disk(self) -> dict[QueueKey, Bounds]:
        """The ends of expired messages in the queues' files, for a store without a checkpoint."""
        ends = {}
        for key, directory in queue_directories(self.files):
            if key[0] not in self.dead_before:
                for first, entries in read_entries(self.files, directory):
                    is_expired = (entries["size"] > 0) & (entries["position"] < self.log.start)
                    expired = np.flatnonzero(is_expired)
                    if len(expired):
                        end = first + int(expired[-1]) + 1
                        ends[key] = Bounds(end, end)
        return ends

    def _remove_queues(self, kept: Mapping[QueueKey, Bounds]) -> None:
        """Remove all names in the topics' directories but those of the kept queues."""
        for topic in served_topics(self.files):
            for name in self.files.names(join(QUEUE_DIRECTORY, topic)):
                if not name.isdecimal() or (topic, int(name)) not in kept:
                    self._remove(topic, name)

    def _remove(self, topic: str, name: str) -> None:
        directory = join(QUEUE_DIRECTORY, topic, name)
        self.queues.open_files.close_below(directory)
        remove_queue(self.files, directory)
        self.queues.dirty_directories.update((QUEUE_DIRECTORY, join(QUEUE_DIRECTORY, topic)))
