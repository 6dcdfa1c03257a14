"""Requests about queue offsets and about the committed offsets of consumer groups."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketmq_wire.model import CommittedOffset, QueueId
from rocketmq_wire.requests import permissions
from rocketmq_wire.requests.contract import Done, Reply, Request


@dataclass(frozen=True, slots=True)
class OffsetReply(Reply):
    value: int
    is_current: bool = field(default=True, compare=False)
    """False if a replica answered; the client sets it, for the wire does not carry it."""


@dataclass(frozen=True, slots=True)
class GetCommittedOffset(Request[OffsetReply]):
    """14: read a committed offset. Raises ProgressNotFoundError (22)."""

    access = permissions.GET_CONSUMPTION
    group: str
    queue: QueueId
    zero_if_absent: bool = False


@dataclass(frozen=True, slots=True)
class CommitOffset(Request[Done]):
    """15: overwrite a committed offset, also with a lower one."""

    access = permissions.CONSUME
    group: str
    queue: QueueId
    offset: int


class Boundary(enum.Enum):
    """The message that a search returns if several have the same timestamp."""

    LOWER = "lower"
    UPPER = "upper"


@dataclass(frozen=True, slots=True)
class SearchOffset(Request[OffsetReply]):
    """29: find the offset of a store time."""

    access = permissions.GET_TOPIC
    queue: QueueId
    timestamp_ms: int
    boundary: Boundary = Boundary.LOWER


@dataclass(frozen=True, slots=True)
class GetMaxOffset(Request[OffsetReply]):
    """30: the next offset to be written."""

    access = permissions.GET_TOPIC
    queue: QueueId


@dataclass(frozen=True, slots=True)
class GetMinOffset(Request[OffsetReply]):
    """31: the first offset that the queue holds."""

    access = permissions.GET_TOPIC
    queue: QueueId


@dataclass(frozen=True, slots=True)
class GetEarliestStoreTime(Request[OffsetReply]):
    """32: milliseconds, -1 if the queue is empty."""

    access = permissions.GET_TOPIC
    queue: QueueId


@dataclass(frozen=True, slots=True)
class ConsumeStatsReply(Reply):
    queues: Mapping[QueueId, CommittedOffset]
    tps: float = 0.0


@dataclass(frozen=True, slots=True)
class GetConsumeStats(Request[ConsumeStatsReply]):
    """208: a group's committed offsets at one broker."""

    access = permissions.GET_TOPIC
    group: str
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class AllCommittedOffsetsReply(Reply):
    """The committed offsets of every group of a broker: a list per group, an entry per topic."""

    groups: Mapping[str, tuple[ConsumeStatsReply, ...]]
    address: str = ""


@dataclass(frozen=True, slots=True)
class GetAllCommittedOffsets(Request[AllCommittedOffsetsReply]):
    """317: the committed offsets of all groups of a broker."""

    access = permissions.GET_CLUSTER
    only_ordered: bool = False


@dataclass(frozen=True, slots=True)
class OffsetsReply(Reply):
    offsets: Mapping[QueueId, int]


@dataclass(frozen=True, slots=True)
class ResetClientOffsets(Request[OffsetsReply]):
    """222: reset a group's committed offsets to a time, or in one queue to an offset."""

    access = permissions.ADMIN
    group: str
    topic: str
    timestamp_ms: int
    """Negative: to the end."""
    is_forced: bool = True
    queue_index: int = -1
    """Negative: every queue."""
    offset: int | None = None
