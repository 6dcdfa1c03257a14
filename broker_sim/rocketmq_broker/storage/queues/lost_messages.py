"""Messages that a repair gave up: holes of queues, kept in `config/lostMessages.json`.

A hole keeps the offsets of what is lost: nobody gets them again, and nothing behind them moves. Its
position is where in the log the lost bytes were; a blank record stands there now. Holes go with the
log that they are in: when it is deleted, and when their topic is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketmq_broker.storage.disk.config_files import CONFIG_DIRECTORY
from rocketmq_broker.storage.disk.files import Files, join, read_file, write_file
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.queues.lite_queues import is_lite_queue, parent_of

LOST_NAME: Final = join(CONFIG_DIRECTORY, "lostMessages.json")
_LOST: Final = "lostMessages"

QueueKey = tuple[str, int]


@dataclass(frozen=True, slots=True, order=True)
class Hole:
    """Offsets `[start, end)` of a queue, whose messages are gone."""

    topic: str
    queue_index: int
    start: int
    end: int
    position: int

    def as_json(self) -> dict[str, str | int]:
        return {
            "topic": self.topic,
            "queueId": self.queue_index,
            "start": self.start,
            "end": self.end,
            "position": self.position,
        }

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Hole:
        """Raises KeyError, TypeError or ValueError."""
        numbers = (int(value[name]) for name in ("queueId", "start", "end", "position"))
        return cls(str(value["topic"]), *numbers)


class Holes:
    """All holes of a store."""

    def __init__(self, holes: Iterable[Hole] = ()) -> None:
        self._by_queue: dict[QueueKey, tuple[Hole, ...]] = {}
        for hole in sorted(holes):
            key = (hole.topic, hole.queue_index)
            self._by_queue[key] = (*self._by_queue.get(key, ()), hole)

    def __iter__(self) -> Iterator[Hole]:
        for holes in self._by_queue.values():
            yield from holes

    @property
    def queues(self) -> tuple[QueueKey, ...]:
        """The queues that have any."""
        return tuple(self._by_queue)

    def of(self, topic: str, index: int) -> tuple[Hole, ...]:
        """One queue's, ascending."""
        return self._by_queue.get((topic, index), ())

    def at(self, topic: str, index: int, offset: int) -> Hole | None:
        """The hole that an offset is in."""
        for hole in self.of(topic, index):
            if hole.start <= offset < hole.end:
                return hole
        return None

    def offsets_from(self, topic: str, index: int, start: int, count: int) -> npt.NDArray[np.int64]:
        """The offsets that the next so many messages of a queue have."""
        offsets = start + np.arange(count)
        for hole in self.of(topic, index):
            if hole.end > start:
                first = max(hole.start, start)
                offsets[offsets >= first] += hole.end - first
        return offsets

    def living(self, log_start: int, dead_before: Mapping[str, int]) -> Holes:
        """Without those of deleted log and of deleted topics."""
        return Holes(
            hole
            for hole in self
            if hole.position >= max(log_start, dead_before.get(parent_of(hole.topic), -1))
        )

    def served(self) -> Holes:
        """Without those of light queues."""
        return Holes(hole for hole in self if not is_lite_queue(hole.topic))


def load_holes(files: Files) -> Holes:
    """What earlier repairs gave up. Raises StorageError where that cannot be read."""
    data = read_file(files, LOST_NAME)
    if data is None:
        return Holes()
    try:
        return Holes(map(Hole.of_json, json.loads(data)[_LOST]))
    except (ValueError, KeyError, TypeError) as error:
        reason = f"the list of messages that were given up is not readable: {error}"
        raise StorageError(LOST_NAME, 0, reason) from error


def save_holes(files: Files, holes: Iterable[Hole]) -> None:
    """Return once it is on the disk."""
    text = json.dumps({_LOST: [hole.as_json() for hole in holes]}, ensure_ascii=False, indent="\t")
    write_file(files, LOST_NAME, text.encode())
