"""RocketMQ's own consume queues: the messages that they list, and their log positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocketmq_broker.storage.disk.files import Files
from rocketmq_broker.storage.queues.consume_queue import BLANK_ENTRY_SIZE, QueueKey, read_entries
from rocketmq_broker.storage.queues.lite_queues import queue_directories


@dataclass(frozen=True, slots=True)
class RocketMQQueue:
    """The messages that one queue lists."""

    topic: str
    end: int
    """Offset behind the last entry; 0 without entries."""
    entries_per_file: int
    living: npt.NDArray[np.int64]
    """Log positions of the records that have not expired, ascending."""

    @property
    def first_position(self) -> int:
        """Log position of the oldest record that has not expired; -1 if there is none."""
        return int(self.living[0]) if len(self.living) else -1

    @property
    def living_count(self) -> int:
        return len(self.living)

    def positions_from(self, log_end: int) -> npt.NDArray[np.int64]:
        """The listed log positions at or behind a position."""
        return self.living[int(np.searchsorted(self.living, log_end)) :]


def rocketmq_queues(files: Files, *, log_start: int) -> dict[QueueKey, RocketMQQueue]:
    """Every queue with a directory, without lite queues."""
    return {
        key: _read(files, key[0], directory, log_start)
        for key, directory in queue_directories(files)
    }


def _read(files: Files, topic: str, directory: str, log_start: int) -> RocketMQQueue:
    end = entries_per_file = 0
    living = [np.empty(0, np.int64)]
    for first, entries in read_entries(files, directory):
        entries_per_file = max(entries_per_file, len(entries))
        unused = np.flatnonzero(entries["size"] <= 0)
        used = entries[: int(unused[0])] if len(unused) else entries
        messages = used["size"] != BLANK_ENTRY_SIZE
        positions = used["position"].astype(np.int64)
        if len(used):
            end = first + len(used)
        living.append(positions[messages & (positions >= log_start)])
    return RocketMQQueue(topic, end, entries_per_file, np.concatenate(living))
