"""Keeps the newest sample, and numbers of the earlier ones for each topic and group.

A sample of a large cluster takes megabytes, so only the newest is kept. Growth is measured queue by
queue, from that queue's previous sample to this one: a queue that is new, or whose broker was
unavailable, does not add all its messages to a single moment. Pure, and not thread-safe.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rocketmq_cli.groups import Members
from rocketmq_client.line_chart import Point
from rocketmq_wire.model import DEAD_LETTER_PREFIX, CommittedOffset, QueueId, QueueStats
from rocketmq_wire.numbers import whole_number

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
    retention_hours: str | None = None
    """How long the broker keeps messages, None if it does not report its settings."""

    @property
    def log_bytes(self) -> int | None:
        """The size of the stored messages, None if it is unknown."""
        start = whole_number(self.runtime.get("commitLogMinOffset"))
        end = whole_number(self.runtime.get("commitLogMaxOffset"))
        return None if start is None or end is None else end - start

    @property
    def disk_used(self) -> float | None:
        """The used part of the log's disk, between 0 and 1, None if it is unknown."""
        try:
            return float(self.runtime["commitLogDiskRatio"])
        except (KeyError, ValueError):
            return None

    @property
    def oldest_ms(self) -> int | None:
        """The store time of the oldest message, None without messages."""
        return whole_number(self.runtime.get("earliestMessageTimeStamp"))


@dataclass(frozen=True, slots=True)
class Sample:
    """A cluster at a moment, without the queues of brokers that did not answer."""

    time_ms: int
    brokers: tuple[BrokerSample, ...] = ()
    topics: Mapping[str, Mapping[QueueId, QueueStats]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[QueueId, CommittedOffset]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    unread_ms: Mapping[str, Mapping[QueueId, int]] = field(default_factory=dict)
    """By group, the store time of the next unread message of each queue with lag, if known."""
    members: Mapping[str, Members] = field(default_factory=dict)
    """The groups that have live members, with these."""

    def message_count(self, topic: str) -> int:
        return sum(stat.end - stat.start for stat in self.topics.get(topic, {}).values())

    def lag(self, group: str, topic: str | None = None) -> int:
        """Messages that a group has not committed, in a topic or in all."""
        return sum(
            at.lag
            for queue, at in self.groups.get(group, {}).items()
            if topic in (None, queue.topic)
        )

    def seconds_behind(self, group: str, topic: str | None = None) -> float | None:
        """The age of a group's oldest unread message; 0 without lag, None if it is unknown."""
        if self.lag(group, topic) == 0:
            return 0.0
        ages = [
            age
            for queue in self.unread_ms.get(group, {})
            if topic in (None, queue.topic) and (age := self.queue_age(group, queue)) is not None
        ]
        return max(ages, default=None)

    def queue_age(self, group: str, queue: QueueId) -> float | None:
        """The age of the next unread message of a queue in seconds, None if it is unknown."""
        stored_ms = self.unread_ms.get(group, {}).get(queue)
        return None if stored_ms is None else max(0.0, (self.time_ms - stored_ms) / 1_000)

    def dead_letters(self, group: str) -> int:
        """The messages in a group's dead-letter topic."""
        return self.message_count(DEAD_LETTER_PREFIX + group)


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


class Track:
    """One topic or group over time."""

    def __init__(self, length_max: int) -> None:
        self.rate = Series(length_max)
        """How fast its counters grew, per second between two samples."""
        self.lag = Series(length_max)
        self.last_sample = 0
        """The number of the last sample that contained it."""
        self._seen: dict[QueueId, tuple[int, int]] = {}

    def take(self, time_ms: int, counts: Iterable[tuple[QueueId, int]]) -> float | None:
        """Add the rate since each counter's previous sample, and return it; None if all are new.

        A counter that shrank adds 0.
        """
        total = None
        for queue, count in counts:
            time_before_ms, before = self._seen.get(queue, (time_ms, 0))
            if time_ms > time_before_ms:
                grown = max(0, count - before) * 1_000 / (time_ms - time_before_ms)
                total = grown + (total or 0.0)
            self._seen[queue] = (time_ms, count)
        if total is not None:
            self.rate.add(time_ms, total)
        return total


class History:
    """The newest sample, and rates and lag of each topic and group over the last samples."""

    def __init__(self, length_max: int) -> None:
        self._length_max = length_max
        self._sample_count = 0
        self._topics: dict[str, Track] = {}
        self._groups: dict[str, Track] = {}
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

    def topic(self, name: str = _ALL) -> Track:
        """The messages stored in a topic or in all; empty for an unknown one."""
        return self._topics.get(name) or Track(0)

    def group(self, name: str) -> Track:
        """The messages that a group committed, and its lag while a broker reported the group."""
        return self._groups.get(name) or Track(0)

    def _take_topics(self, sample: Sample) -> None:
        every = None
        for name, queues in sample.topics.items():
            counts = ((queue, stat.end) for queue, stat in queues.items())
            rate = self._track(self._topics, name).take(sample.time_ms, counts)
            # A dead letter was counted before, in the topic to which it was sent.
            if rate is not None and not name.startswith(DEAD_LETTER_PREFIX):
                every = rate + (every or 0.0)
        if every is not None:
            self._track(self._topics, _ALL).rate.add(sample.time_ms, every)

    def _take_groups(self, sample: Sample) -> None:
        for name, queues in sample.groups.items():
            track = self._track(self._groups, name)
            track.take(
                sample.time_ms, ((queue, at.consumer_offset) for queue, at in queues.items())
            )
            track.lag.add(sample.time_ms, sample.lag(name))

    def _track(self, tracks: dict[str, Track], name: str) -> Track:
        track = tracks.setdefault(name, Track(self._length_max))
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
