"""The messages that consume queues and their last checkpoint list: evidence besides the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_broker.storage.disk.files import Files
from rocketmq_broker.storage.errors import MissingFileError
from rocketmq_broker.storage.log.durability import Mark
from rocketmq_broker.storage.queues.consume_queue import (
    BLANK_ENTRY_SIZE,
    OpenFiles,
    QueueIndex,
    QueueKey,
    read_entries,
)
from rocketmq_broker.storage.queues.derived import Derived
from rocketmq_broker.storage.queues.lite_queues import queue_directories
from rocketmq_broker.storage.settings import StoreConfig


class ListedQueue(NamedTuple):
    """The offsets that one queue lists of the log that is kept."""

    first: int | None
    """First offset; None if all listed messages have expired."""
    end: int


class ListedEntry(NamedTuple):
    position: int
    size: int
    tag_hash: int


class ListedMessages:
    """All queues that have a directory or are in the checkpoint."""

    def __init__(
        self, files: Files, derived: Derived, dead_before: Mapping[str, int], mark: Mark
    ) -> None:
        self._files = files
        self.mark = mark
        self.dead_before = dead_before
        self._open_files = OpenFiles(files)
        self.position = derived.position
        """Log position before which the checkpoint lists all messages."""
        self.bounds = derived.living(dead_before)
        self.queues: dict[QueueKey, ListedQueue] = {}
        self.end = 0
        """End of the last record that any queue lists."""
        self._positions = [np.empty(0, np.int64)]
        self._sizes = [np.empty(0, np.int64)]
        for key, directory in queue_directories(files):
            start = max(mark.log_start, dead_before.get(key[0], -1))
            self.queues[key] = self._read(directory, start)
        self._record_positions = np.concatenate(self._positions)
        self._record_sizes = np.concatenate(self._sizes)

    @staticmethod
    def entries_per_file(files: Files) -> int:
        """Number of entries in the queues' files, if no mark has it."""
        for _, directory in queue_directories(files):
            for _, entries in read_entries(files, directory):
                if len(entries):
                    return len(entries)
        return StoreConfig().queue_file_entries

    def entry(self, key: QueueKey, offset: int) -> ListedEntry | None:
        """The queue's entry of an offset; None if it lists no message there."""
        if key not in self.queues or offset < 0:
            return None
        queue = QueueIndex(self._open_files, *key, self.mark.queue_file_entries)
        try:
            entries = queue.read(offset, offset + 1)
        except MissingFileError:
            return None
        if not len(entries):
            return None
        entry = ListedEntry(*entries[0].tolist())
        return entry if 0 < entry.size != BLANK_ENTRY_SIZE else None

    def is_promised(self, key: QueueKey, offset: int) -> bool:
        """True if the queue's entry of this offset was on the disk at the checkpoint."""
        bounds = self.bounds.get(key)
        return bounds is not None and bounds.start <= offset < bounds.end

    def known_size(self, start: int, end: int) -> int:
        """Size of the records in `[start, end)` that some queue lists."""
        inside = (self._record_positions >= start) & (self._record_positions < end)
        return int(self._record_sizes[inside].sum())

    def close(self) -> None:
        self._open_files.close()

    def _read(self, directory: str, start: int) -> ListedQueue:
        first, end = None, 0
        for begin, entries in read_entries(self._files, directory):
            sizes = entries["size"].astype(np.int64)
            positions = entries["position"].astype(np.int64)
            is_kept = (sizes > 0) & (positions >= start) & (positions < self.mark.end)
            kept = np.flatnonzero(is_kept)
            if not len(kept):
                continue
            first = begin + int(kept[0]) if first is None else first
            end = begin + int(kept[-1]) + 1
            records: npt.NDArray[np.intp] = kept[sizes[kept] != BLANK_ENTRY_SIZE]
            self._positions.append(positions[records])
            self._sizes.append(sizes[records])
            if len(records):
                self.end = max(self.end, int((positions[records] + sizes[records]).max()))
        return ListedQueue(first, end)
