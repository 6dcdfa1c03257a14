"""Requests about queue offsets and about the committed offsets of consumer groups."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from rocketmq_wire.model import CommittedOffset, QueueId
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.permissions import (
    ADMIN,
    CONSUME,
    GET_COMMITTED,
    GET_TOPIC,
    NOTHING,
    AccessRight,
)


@dataclass(frozen=True, slots=True)
class OffsetReply(Reply):
    """One offset or timestamp."""

    value: int
    is_current: bool = field(default=True, compare=False)
    """False when a replica answered, which the wire does not say: whoever knows sets it."""


@dataclass(frozen=True, slots=True)
class GetCommittedOffset(Request[OffsetReply]):
    """14. Raises ProgressNotFoundError (22)."""

    access: ClassVar[AccessRight] = GET_COMMITTED
    group: str
    queue: QueueId
    zero_if_absent: bool = False


@dataclass(frozen=True, slots=True)
class CommitOffset(Request[Done]):
    """15. Overwrites, also backwards."""

    access: ClassVar[AccessRight] = CONSUME
    group: str
    queue: QueueId
    offset: int


class Boundary(enum.Enum):
    """Which message of several with one timestamp a search names."""

    LOWER = "lower"
    UPPER = "upper"


@dataclass(frozen=True, slots=True)
class SearchOffset(Request[OffsetReply]):
    """29."""

    access: ClassVar[AccessRight] = GET_TOPIC
    queue: QueueId
    timestamp_ms: int
    boundary: Boundary = Boundary.LOWER


@dataclass(frozen=True, slots=True)
class GetMaxOffset(Request[OffsetReply]):
    """30: the next offset to be written."""

    access: ClassVar[AccessRight] = GET_TOPIC
    queue: QueueId


@dataclass(frozen=True, slots=True)
class GetMinOffset(Request[OffsetReply]):
    """31."""

    access: ClassVar[AccessRight] = GET_TOPIC
    queue: QueueId


@dataclass(frozen=True, slots=True)
class GetEarliestStoreTime(Request[OffsetReply]):
    """32: milliseconds, -1 when the queue is empty."""

    access: ClassVar[AccessRight] = GET_TOPIC
    queue: QueueId


@dataclass(frozen=True, slots=True)
class ConsumeStatsReply(Reply):
    queues: Mapping[QueueId, CommittedOffset]
    tps: float = 0.0


@dataclass(frozen=True, slots=True)
class GetConsumeStats(Request[ConsumeStatsReply]):
    """208."""

    access: ClassVar[AccessRight] = GET_TOPIC
    group: str
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class AllCommittedOffsetsReply(Reply):
    """For each group of a broker its place in the queues of each topic, a list a group."""

    groups: Mapping[str, tuple[ConsumeStatsReply, ...]]
    address: str = ""

    def total_of(self, name: str) -> int:
        """A sum over all queues: `diff` of what is not consumed, `inflight` of what is pulled."""
        return sum(
            _behind(progress) if name == "diff" else _in_flight(progress)
            for stats in self.groups.values()
            for topic in stats
            for progress in topic.queues.values()
        )


@dataclass(frozen=True, slots=True)
class GetAllCommittedOffsets(Request[AllCommittedOffsetsReply]):
    """317."""

    access: ClassVar[AccessRight] = NOTHING
    only_ordered: bool = False


def _behind(progress: CommittedOffset) -> int:
    return progress.broker_offset - progress.consumer_offset


def _in_flight(progress: CommittedOffset) -> int:
    return max(0, progress.pull_offset - progress.consumer_offset)


@dataclass(frozen=True, slots=True)
class OffsetsReply(Reply):
    """Offsets by queue."""

    offsets: Mapping[QueueId, int]


@dataclass(frozen=True, slots=True)
class ResetClientOffsets(Request[OffsetsReply]):
    """222: move a group's progress to a time, or in one queue to an offset."""

    access: ClassVar[AccessRight] = ADMIN
    group: str
    topic: str
    timestamp_ms: int
    """Negative: to the end."""
    is_forced: bool = True
    queue_index: int = -1
    """Negative: every queue."""
    offset: int | None = None
