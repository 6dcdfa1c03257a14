"""What a cluster looked like at a moment, and what several such moments say together: pure."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketmq_wire.model import QueueId, QueueProgress, QueueStats


class Point(NamedTuple):
    """A value at a moment."""

    time_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """A broker, its address, and what it says of itself; no settings when it did not answer."""

    name: str
    cluster: str
    address: str
    runtime: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A cluster at a moment."""

    time_ms: int
    brokers: tuple[BrokerSeen, ...] = ()
    topics: Mapping[str, Mapping[QueueId, QueueStats]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[QueueId, QueueProgress]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def stored(self, topic: str | None = None) -> int:
        """Messages ever stored in a topic, or in all."""
        topics = self.topics if topic is None else {topic: self.topics.get(topic, {})}
        return sum(stat.end for queues in topics.values() for stat in queues.values())

    def held(self, topic: str) -> int:
        """Messages that a topic has now."""
        return sum(stat.end - stat.start for stat in self.topics.get(topic, {}).values())

    def lag(self, group: str, topic: str | None = None) -> int:
        """Messages that a group has not committed, in a topic or in all."""
        return sum(
            max(0, at.broker_offset - at.consumer_offset)
            for queue, at in self.groups.get(group, {}).items()
            if topic in (None, queue.topic)
        )

    def consumed(self, group: str) -> int:
        """The sum of a group's offsets."""
        return sum(at.consumer_offset for at in self.groups.get(group, {}).values())


class History:
    """The last samples, oldest first."""

    def __init__(self, length_max: int) -> None:
        self._samples: deque[Sample] = deque(maxlen=length_max)

    def add(self, sample: Sample) -> None:
        """Take the newest sample; the oldest goes when there are too many."""
        self._samples.append(sample)

    @property
    def newest(self) -> Sample | None:
        """The last one, None before the first."""
        return self._samples[-1] if self._samples else None

    def lag(self, group: str) -> list[Point]:
        """A group's lag over time; moments at which nobody knew the group are left out."""
        return [Point(s.time_ms, s.lag(group)) for s in self._samples if group in s.groups]

    def rate_in(self, topic: str | None = None) -> list[Point]:
        """Messages stored a second, between two samples each."""
        return _rates([Point(s.time_ms, s.stored(topic)) for s in self._samples])

    def rate_out(self, group: str) -> list[Point]:
        """Messages that a group got on a second."""
        return _rates(
            [Point(s.time_ms, s.consumed(group)) for s in self._samples if group in s.groups]
        )


def _rates(points: list[Point]) -> list[Point]:
    """Growth a second; what shrinks, as a topic does that was made anew, counts as none."""
    found = []
    for before, after in itertools.pairwise(points):
        seconds = (after.time_ms - before.time_ms) / 1_000
        if seconds > 0:
            found.append(Point(after.time_ms, max(0.0, after.value - before.value) / seconds))
    return found
