"""Messages that a repair gave up: holes of queues, kept in `config/lostMessages.json`.

A hole keeps the offsets of the lost messages: no other message gets them, and later messages keep
theirs. Its position is the log position of the lost bytes, which a blank record has replaced. A
hole ends when its part of the log is deleted, or its topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketmq_broker.storage.disk.config_files import (
    CONFIG_DIRECTORY,
    encode_config,
    has_own_checksum,
)
from rocketmq_broker.storage.disk.files import Files, join, read_file, write_file
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.queues.consume_queue import QueueKey
from rocketmq_wire.model import is_lite_queue, parent_of

LOST_NAME: Final = join(CONFIG_DIRECTORY, "lostMessages.json")
_LOST: Final = "lostMessages"
_NAMES: Final = ("topic", "queueId", "start", "end", "position")


@dataclass(frozen=True, slots=True, order=True)
class Hole:
    """Offsets `[start, end)` of a queue whose messages are lost."""

    topic: str
    queue_index: int
    start: int
    end: int
    position: int

    def as_json(self) -> dict[str, str | int]:
        return dict(zip(_NAMES, astuple(self), strict=True))

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Hole:
        """Raises KeyError, TypeError or ValueError."""
        topic, *numbers = (value[name] for name in _NAMES)
        return cls(str(topic), *map(int, numbers))


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
        """The queues that have holes."""
        return tuple(self._by_queue)

    def of(self, topic: str, index: int) -> tuple[Hole, ...]:
        """One queue's holes, ascending."""
        return self._by_queue.get((topic, index), ())

    def at(self, topic: str, index: int, offset: int) -> Hole | None:
        """The hole that contains an offset; None if no hole does."""
        holes = self.of(topic, index)
        return next((hole for hole in holes if hole.start <= offset < hole.end), None)

    def offsets_from(self, topic: str, index: int, start: int, count: int) -> npt.NDArray[np.int64]:
        """The offsets of a queue's next `count` messages, which leave out its holes."""
        offsets = start + np.arange(count)
        for hole in self.of(topic, index):
            if hole.end > start:
                first = max(hole.start, start)
                offsets[offsets >= first] += hole.end - first
        return offsets

    def living(self, log_start: int, dead_before: Mapping[str, int]) -> Holes:
        """The holes in log that is kept, of topics that were not deleted."""
        return Holes(
            hole
            for hole in self
            if hole.position >= max(log_start, dead_before.get(parent_of(hole.topic), -1))
        )

    def served(self) -> Holes:
        """The holes without those of lite queues."""
        return Holes(hole for hole in self if not is_lite_queue(hole.topic))


def load_holes(files: Files) -> Holes:
    """The holes that repairs have left. Raises StorageError if the file is unreadable."""
    data = read_file(files, LOST_NAME)
    if data is None:
        return Holes()
    try:
        content = json.loads(data)
        if "crc32" in content and not has_own_checksum(data):
            raise ValueError("it is not what was written")
        return Holes(map(Hole.of_json, content[_LOST]))
    except (ValueError, KeyError, TypeError) as error:
        reason = f"the list of messages that were given up is not readable: {error}"
        raise StorageError(LOST_NAME, 0, reason) from error


def save_holes(files: Files, holes: Iterable[Hole]) -> None:
    """Return once the holes are on the disk."""
    data = encode_config({_LOST: [hole.as_json() for hole in holes]})
    write_file(files, LOST_NAME, data)
