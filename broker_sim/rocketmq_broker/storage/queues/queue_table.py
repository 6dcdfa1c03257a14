"""All consume queues of a store: entries that wait for the disk, and readable entries."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from rocketmq_broker.storage.disk.files import Files, join
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.queues.consume_queue import (
    QUEUE_DIRECTORY,
    Entries,
    OpenFiles,
    QueueIndex,
    QueueKey,
    join_entries,
)
from rocketmq_broker.storage.queues.lite_queues import lite_queues
from rocketmq_broker.storage.settings import Arrival
from rocketmq_wire.model import parent_of

_LOG = logging.getLogger(__name__)
_RECORD_ENDS_DISTANCE: Final = 1024 * 1024


class _Pending(NamedTuple):
    queue: QueueIndex
    offset: int
    entries: Entries
    end_position: int


class QueueTable:
    """Owns the queues and their files. Its caller serialises access."""

    def __init__(self, files: Files, entries_per_file: int) -> None:
        self.entries_per_file = entries_per_file
        self.open_files = OpenFiles(files)
        self.published_end = 0
        """Records before this log position are in their queues."""
        self.record_ends: deque[int] = deque()
        """Ends of records, at least 1 MiB apart: a reader of the log may stop there."""
        self._files = files
        self._queues: dict[QueueKey, QueueIndex] = {}
        self._directories = set[str]()
        self._pending: deque[_Pending] = deque()
        self._leftover: frozenset[str] = frozenset()
        """Deleted topics whose files may still be on the disk."""
        self.dirty_directories: set[str] = set()
        """Directories in which names were created since the last checkpoint."""

    def __iter__(self) -> Iterator[QueueIndex]:
        return iter(list(self._queues.values()))

    def get(self, topic: str, index: int) -> QueueIndex | None:
        """The queue, or None if it never had a message."""
        return self._queues.get((topic, index))

    def get_or_create(self, topic: str, index: int) -> QueueIndex:
        """The queue; a new one begins at offset 0.

        Raises StorageError: the disk keeps the files of a deleted topic of this name.
        """
        queue = self._queues.get((topic, index))
        if queue is None:
            if topic in self._leftover:
                self._remove_leftover()
            queue = QueueIndex(self.open_files, topic, index, self.entries_per_file)
            self._queues[topic, index] = queue
        return queue

    def append(self, queue: QueueIndex, offset: int, entries: Entries, end_position: int) -> None:
        """Keep entries until `publish` makes them readable."""
        self._pending.append(_Pending(queue, offset, entries, end_position))

    def publish(self, limit: int) -> list[Arrival]:
        """Move the entries of records before a log position into their queues."""
        ready: dict[QueueIndex, list[_Pending]] = {}
        count = 0
        for pending in self._pending:
            if pending.end_position > limit:
                break
            count += 1
            if not pending.queue.is_deleted:
                ready.setdefault(pending.queue, []).append(pending)
        arrivals = []
        for queue, pieces in ready.items():
            self.write(queue, pieces[0].offset, [piece.entries for piece in pieces])
            arrivals.append(Arrival(queue.topic, queue.index, queue.end))
        for _ in range(count):
            self.published_end = self._pending.popleft().end_position
        if count and (
            not self.record_ends
            or self.published_end - self.record_ends[-1] >= _RECORD_ENDS_DISTANCE
        ):
            self.record_ends.append(self.published_end)
        return arrivals

    def write(self, queue: QueueIndex, offset: int, parts: list[Entries]) -> None:
        """Write entries to a queue's files and make them readable."""
        entries = join_entries(parts)
        self._make_directories(queue)
        queue.write(offset, entries)
        queue.end = offset + len(entries)
        queue.next = max(queue.next, queue.end)

    def remove_topics(self, topics: Collection[str]) -> None:
        """Delete the queues and lite queues of topics.

        If the disk refuses to remove files, the next message for a topic of this name does it.
        """
        for key in [key for key in self._queues if key[0] in topics]:
            self._queues.pop(key).is_deleted = True
        self._leftover |= frozenset(topics)
        try:
            self._remove_leftover()
        except StorageError as error:
            _LOG.warning("files of deleted topics cannot be removed yet: %s", error)

    def _remove_leftover(self) -> None:
        topics = self._leftover
        lite = {name for name in lite_queues(self._files) if parent_of(name) in topics}
        directories = {join(QUEUE_DIRECTORY, name) for name in topics | lite}
        self._directories = {
            name for name in self._directories if name.rpartition("/")[0] not in directories
        }
        for directory in directories:
            self.open_files.close_below(directory)
            for name in self._files.names(directory):
                remove_queue(self._files, join(directory, name))
            self._files.remove_directory(directory)
        self._files.sync_directory(QUEUE_DIRECTORY)
        self._leftover = frozenset()

    def forget(self) -> None:
        """Forget every queue; their files stay."""
        self._queues.clear()
        self._directories.clear()

    def close(self) -> None:
        self.open_files.close()

    def _make_directories(self, queue: QueueIndex) -> None:
        if queue.directory in self._directories:
            return
        topic_directory = join(QUEUE_DIRECTORY, queue.topic)
        self._files.make_directory(topic_directory)
        self._files.make_directory(queue.directory)
        self._directories.add(queue.directory)
        self.dirty_directories.update((QUEUE_DIRECTORY, topic_directory))


def remove_queue(files: Files, directory: str) -> None:
    """Remove a queue's directory, or a file in its place, which this broker did not write."""
    try:
        names = files.names(directory)
    except StorageError:
        files.unlink(directory)
        return
    for name in names:
        files.unlink(join(directory, name))
    files.remove_directory(directory)
