"""Keeps the newest sample, and numbers of the earlier ones for each topic and group.

A sample of a large cluster takes megabytes, so only the newest is kept. Growth is measured queue by
queue, from that queue's previous sample to this one: a queue that is new, or whose broker was
unavailable, does not add all its messages to a single moment. Pure, and not thread-safe.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from rocketmq_wire.model import CommittedOffset, QueueId, QueueStats

_ALL: Final = ""
"""Stands for all topics together: no topic has this name."""


@dataclass(frozen=True, slots=True)
class BrokerSample:
    """A broker with its address and runtime information, which is empty if it did not answer."""

    name: str
    cluster: str
    address: str
    runtime: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A cluster at a moment, without the queues of brokers that did not answer."""

    time_ms: int
    brokers: tuple[BrokerSample, ...] = ()
    topics: Mapping[str, Mapping[QueueId, QueueStats]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[QueueId, CommittedOffset]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def message_count(self, topic: str) -> int:
        return sum(stat.end - stat.start for stat in self.topics.get(topic, {}).values())

    def lag(self, group: str, topic: str | None = None) -> int:
        """Messages that a group has not committed, in a topic or in all."""
        return sum(
            at.lag
            for queue, at in self.groups.get(group, {}).items()
            if topic in (None, queue.topic)
        )


class Point(NamedTuple):
    time_ms: int
    value: float


class Series:
    """The last values of one number, oldest first, 16 bytes each."""

    def __init__(self, length_max: int) -> None:
        self._length_max = length_max
        self._times, self._values = array("q"), array("d")

    def add(self, time_ms: int, value: float) -> None:
        """Append the newest value, and drop the oldest if there are too many."""
        if len(self._times) == self._length_max:
            del self._times[0], self._values[0]
        self._times.append(time_ms)
        self._values.append(value)

    def points(self) -> list[Point]:
        return list(map(Point, self._times, self._values))

    def value_at(self, time_ms: int) -> float | None:
        """The newest value if it is of that moment, else None."""
        is_there = bool(self._times) and self._times[-1] == time_ms
        return self._values[-1] if is_there else None


class _Growth:
    """Measures how fast counters grow, each since its previous sample."""

    def __init__(self) -> None:
        self._seen: dict[QueueId, tuple[int, int]] = {}

    def a_second(self, time_ms: int, counts: Iterable[tuple[QueueId, int]]) -> float | None:
        """The growth of all per second; None if all are new. A counter that shrank adds 0."""
        total = None
        for queue, count in counts:
            time_before_ms, before = self._seen.get(queue, (time_ms, 0))
            if time_ms > time_before_ms:
                grown = max(0, count - before) * 1_000 / (time_ms - time_before_ms)
                total = grown + (total or 0.0)
            self._seen[queue] = (time_ms, count)
        return total


class _Track:
    """One topic or group over time."""

    def __init__(self, length_max: int) -> None:
        self.growth = _Growth()
        self.rate = Series(length_max)
        self.lag = Series(length_max)
        self.last_sample = 0
        """The number of the last sample that contained it."""


class History:
    """The newest sample, and rates and lag of each topic and group over the last samples."""

    def __init__(self, length_max: int) -> None:
        self._length_max = length_max
        self._sample_count = 0
        self._topics: dict[str, _Track] = {}
        self._groups: dict[str, _Track] = {}
        self._brokers: dict[str, tuple[int, BrokerSample]] = {}
        self.newest: Sample | None = None
        """The last sample, None before the first."""

    def add(self, sample: Sample) -> None:
        """Add the newest sample, and drop what no kept sample contains."""
        self._sample_count += 1
        self._take_topics(sample)
        self._take_groups(sample)
        for broker in sample.brokers:
            self._brokers[broker.name] = (self._sample_count, broker)
        oldest = self._sample_count - self._length_max
        for tracks in (self._topics, self._groups):
            for name in [name for name, track in tracks.items() if track.last_sample <= oldest]:
                del tracks[name]
        self._brokers = {name: seen for name, seen in self._brokers.items() if seen[0] > oldest}
        self.newest = self._with_missing_brokers(sample)

    def lag(self, group: str) -> list[Point]:
        """A group's lag over time, without moments at which no broker reported the group."""
        return self._groups[group].lag.points() if group in self._groups else []

    def rate_in(self, topic: str = _ALL) -> list[Point]:
        """Messages stored per second between two samples, in a topic or in all."""
        return self._topics[topic].rate.points() if topic in self._topics else []

    def rate_out(self, group: str) -> list[Point]:
        """Messages that a group committed per second."""
        return self._groups[group].rate.points() if group in self._groups else []

    def rate_in_now(self, topic: str) -> float | None:
        """A topic's rate in the newest sample, None if unknown."""
        return self._rate_now(self._topics.get(topic))

    def rate_out_now(self, group: str) -> float | None:
        """A group's rate in the newest sample, None if unknown."""
        return self._rate_now(self._groups.get(group))

    def _rate_now(self, track: _Track | None) -> float | None:
        if track is None or self.newest is None:
            return None
        return track.rate.value_at(self.newest.time_ms)

    def _take_topics(self, sample: Sample) -> None:
        every = None
        for name, queues in sample.topics.items():
            counts = ((queue, stat.end) for queue, stat in queues.items())
            rate = self._take(self._topics, name, sample.time_ms, counts)
            if rate is not None:
                every = rate + (every or 0.0)
        if every is not None:
            self._track(self._topics, _ALL).rate.add(sample.time_ms, every)

    def _take_groups(self, sample: Sample) -> None:
        for name, queues in sample.groups.items():
            counts = ((queue, at.consumer_offset) for queue, at in queues.items())
            self._take(self._groups, name, sample.time_ms, counts)
            self._groups[name].lag.add(sample.time_ms, sample.lag(name))

    def _take(
        self,
        tracks: dict[str, _Track],
        name: str,
        time_ms: int,
        counts: Iterable[tuple[QueueId, int]],
    ) -> float | None:
        track = self._track(tracks, name)
        rate = track.growth.a_second(time_ms, counts)
        if rate is not None:
            track.rate.add(time_ms, rate)
        return rate

    def _track(self, tracks: dict[str, _Track], name: str) -> _Track:
        track = tracks.setdefault(name, _Track(self._length_max))
        track.last_sample = self._sample_count
        return track

    def _with_missing_brokers(self, sample: Sample) -> Sample:
        """The sample, with the earlier brokers that the name server does not list any more."""
        if not sample.brokers:
            return sample
        missing = tuple(
            replace(broker, runtime={}, error="the name server does not list it any more")
            for number, broker in self._brokers.values()
            if number < self._sample_count
        )
        return replace(sample, brokers=sample.brokers + missing)
