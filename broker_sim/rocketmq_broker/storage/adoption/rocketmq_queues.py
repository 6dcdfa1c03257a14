"""RocketMQ's own consume queues, as far as an adoption needs them: what they list, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_broker.storage.disk.files import Files, join
from rocketmq_broker.storage.queues.consume_queue import ENTRY, QUEUE_DIRECTORY
from rocketmq_broker.storage.queues.lite_queues import served_topics

BLANK_SIZE: Final = 2**31 - 1
"""The size in an entry that only fills the place before a queue's first message."""


@dataclass(frozen=True, slots=True)
class RocketMQQueue:
    """What one queue lists."""

    topic: str
    end: int
    """The offset behind its last entry; 0 if it has none."""
    entries_per_file: int
    living: npt.NDArray[np.int64]
    """Log positions of the records that have not expired, ascending."""

    @property
    def first_position(self) -> int:
        """The oldest record's log position that has not expired; -1 if there is none."""
        return int(self.living[0]) if len(self.living) else -1

    @property
    def living_count(self) -> int:
        return len(self.living)

    def positions_from(self, log_end: int) -> npt.NDArray[np.int64]:
        """The positions listed at or behind a log position."""
        return self.living[int(np.searchsorted(self.living, log_end)) :]


def rocketmq_queues(files: Files, *, log_start: int) -> dict[tuple[str, int], RocketMQQueue]:
    """Every queue with a directory, without light queues."""
    queues = {}
    for topic in served_topics(files):
        for name in files.names(join(QUEUE_DIRECTORY, topic)):
            if name.isdecimal():
                directory = join(QUEUE_DIRECTORY, topic, name)
                queues[topic, int(name)] = _read(files, topic, directory, log_start)
    return queues


def _read(files: Files, topic: str, directory: str, log_start: int) -> RocketMQQueue:
    end = entries_per_file = 0
    living = [np.empty(0, np.int64)]
    for first, entries in queue_files(files, directory):
        entries_per_file = max(entries_per_file, len(entries))
        unused = np.flatnonzero(entries["size"] <= 0)
        used = entries[: int(unused[0])] if len(unused) else entries
        messages = used["size"] != BLANK_SIZE
        positions = used["position"].astype(np.int64)
        if len(used):
            end = first + len(used)
        living.append(positions[messages & (positions >= log_start)])
    return RocketMQQueue(topic, end, entries_per_file, np.concatenate(living))


def queue_files(files: Files, directory: str) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
    """The files of one queue: the offset each begins at, and its entries."""
    for name in files.names(directory):
        if not name.isdecimal():
            continue
        file = files.open(join(directory, name))
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
        whole = data[: len(data) - len(data) % ENTRY.itemsize]
        yield int(name) // ENTRY.itemsize, np.frombuffer(whole, ENTRY)
