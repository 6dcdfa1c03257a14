"""The state of a cluster at a moment: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketmq_wire.model import CommittedOffset, QueueId, QueueStats


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
        """The number of messages in a topic."""
        return sum(stat.end - stat.start for stat in self.topics.get(topic, {}).values())

    def lag(self, group: str, topic: str | None = None) -> int:
        """Messages that a group has not committed, in a topic or in all."""
        return sum(
            at.lag
            for queue, at in self.groups.get(group, {}).items()
            if topic in (None, queue.topic)
        )
