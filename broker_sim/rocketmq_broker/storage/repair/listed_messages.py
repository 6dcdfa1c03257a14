"""What consume queues and their last checkpoint say of messages: a witness beside the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocketmq_broker.storage.adoption.rocketmq_queues import BLANK_SIZE, queue_files
from rocketmq_broker.storage.disk.files import Files, join
from rocketmq_broker.storage.errors import MissingFileError
from rocketmq_broker.storage.log.durable_mark import Mark
from rocketmq_broker.storage.queues.consume_queue import QUEUE_DIRECTORY, OpenFiles, QueueIndex
from rocketmq_broker.storage.queues.derived import Derived
from rocketmq_broker.storage.queues.lite_queues import served_topics
from rocketmq_broker.storage.queues.lost_messages import QueueKey
from rocketmq_broker.storage.settings import StoreConfig
from rocketmq_wire.model import Bounds


@dataclass(frozen=True, slots=True)
class Listed:
    """What one queue lists of the log that is kept."""

    first: int | None
    """The first offset; None if all it lists has expired."""
    end: int


class ListedMessages:
    """All queues that have a directory or are in the checkpoint."""

    def __init__(
        self,
        files: Files,
        derived: Derived | None,
        dead_before: Mapping[str, int],
        mark: Mark,
    ) -> None:
        self._files, self._mark = files, mark
        self._open_files = OpenFiles(files)
        self.position = derived.position if derived is not None else mark.log_start
        """Up to here all messages are listed."""
        self.bounds: Mapping[QueueKey, Bounds] = {
            key: bounds
            for key, bounds in (derived.bounds if derived is not None else {}).items()
            if dead_before.get(key[0], -1) < self.position
        }
        self.queues: dict[QueueKey, Listed] = {}
        self.end = 0
        """Behind the last record that any queue lists."""
        self._places: list[npt.NDArray[np.int64]] = []
        for topic in served_topics(files):
            start = max(mark.log_start, dead_before.get(topic, -1))
            for name in files.names(join(QUEUE_DIRECTORY, topic)):
                if name.isdecimal():
                    self.queues[topic, int(name)] = self._read(topic, name, start)
        self._by_place = (
            np.concatenate(self._places) if self._places else np.empty((0, 2), np.int64)
        )

    @staticmethod
    def entries_per_file(files: Files) -> int:
        """How many entries the queues' files have, where no mark says it."""
        for topic in served_topics(files):
            for name in files.names(join(QUEUE_DIRECTORY, topic)):
                for _, entries in queue_files(files, join(QUEUE_DIRECTORY, topic, name)):
                    if len(entries):
                        return len(entries)
        return StoreConfig().queue_file_entries

    def entry(self, key: QueueKey, offset: int) -> tuple[int, int, int] | None:
        """Log position, size and tag hash of what a queue lists at an offset."""
        if key not in self.queues or offset < 0:
            return None
        queue = QueueIndex(self._open_files, *key, self._mark.queue_file_entries)
        try:
            entries = queue.read(offset, offset + 1)
        except MissingFileError:
            return None
        if not len(entries):
            return None
        position, size, tag_hash = entries[0].tolist()
        return (position, size, tag_hash) if 0 < size != BLANK_SIZE else None

    def is_promised(self, key: QueueKey, offset: int) -> bool:
        """True if the checkpoint says that the queue's entry of this offset is on the disk."""
        bounds = self.bounds.get(key)
        return bounds is not None and bounds.start <= offset < bounds.end

    def known_size(self, start: int, end: int) -> int:
        """How many bytes of `[start, end)` are records that some queue lists."""
        places = self._by_place
        if not len(places):
            return 0
        inside = (places[:, 0] >= start) & (places[:, 0] < end)
        return int(places[inside, 1].sum())

    def close(self) -> None:
        self._open_files.close()

    def _read(self, topic: str, name: str, start: int) -> Listed:
        first, end = None, 0
        for begin, entries in queue_files(self._files, join(QUEUE_DIRECTORY, topic, name)):
            sizes, positions = (
                entries["size"].astype(np.int64),
                entries["position"].astype(np.int64),
            )
            is_kept = (sizes > 0) & (positions >= start) & (positions < self._mark.end)
            kept = np.flatnonzero(is_kept)
            if not len(kept):
                continue
            first = begin + int(kept[0]) if first is None else first
            end = begin + int(kept[-1]) + 1
            real = kept[sizes[kept] != BLANK_SIZE]
            self._places.append(np.stack((positions[real], sizes[real]), axis=1))
            if len(real):
                self.end = max(self.end, int((positions[real] + sizes[real]).max()))
        return Listed(first, end)
