"""Requests that a broker sends, or passes on from a tool, to one member of a group."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.offsets import OffsetsReply
from rocketmq_wire.requests.permissions import (
    ADMIN,
    GET_TOPIC,
    JOIN_GROUP_OR_ADMIN,
    NOTHING,
    AccessRight,
)


@dataclass(frozen=True, slots=True)
class RelayedReply(Reply):
    """What a client answered, as it came: tools read more in it than brokers do."""

    code: int
    remark: str | None
    ext_fields: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class ResetOffsets(Request[Done]):
    """220, oneway: an administrator wants the group to go on elsewhere."""

    access: ClassVar[AccessRight] = ADMIN
    group: str
    topic: str
    offsets: Mapping[QueueId, int]


@dataclass(frozen=True, slots=True)
class GetClientOffsets(Request[OffsetsReply]):
    """221: how far this member is in its queues of a topic."""

    access: ClassVar[AccessRight] = GET_TOPIC
    group: str
    topic: str


@dataclass(frozen=True, slots=True)
class MembersOffsetsReply(Reply):
    """By client id, how far each member is."""

    members: Mapping[str, Mapping[QueueId, int]]


@dataclass(frozen=True, slots=True)
class GetMembersOffsets(Request[MembersOffsetsReply]):
    """223: how far the members of a group are in a topic, as they say themselves.

    Raises BrokerError (206) when nobody is online.
    """

    access: ClassVar[AccessRight] = GET_TOPIC
    group: str
    topic: str
    client_id: str = ""
    """Empty for all members."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as the member that owns it sees it. Times are of the epoch, in milliseconds."""

    done: int
    count: int = 0
    """Messages that wait here."""
    first: int = 0
    last: int = 0
    """Offsets of the first and the last of them."""
    size: int = 0
    """Bytes of their bodies."""
    is_locked: bool = False
    lock_ms: int = 0
    is_dropped: bool = False
    pull_ms: int = 0
    consume_ms: int = 0


@dataclass(frozen=True, slots=True)
class ConsumeRates:
    """What a member does with a topic, each second; times in milliseconds."""

    pull_ms: float = 0.0
    pulled: float = 0.0
    consume_ms: float = 0.0
    succeeded: float = 0.0
    failed: float = 0.0


@dataclass(frozen=True, slots=True)
class RunningInfoReply(Reply):
    """What tools show of a member."""

    properties: Mapping[str, str]
    queues: Mapping[QueueId, QueueInfo]
    rates: Mapping[str, ConsumeRates]
    subscriptions: tuple[tuple[str, str, str, int], ...] = ()
    """(topic, expression, kind, version)"""


@dataclass(frozen=True, slots=True)
class GetRunningInfo(Request[RunningInfoReply]):
    """307: what a member of a group is doing. Tools ask the broker, and it asks the member."""

    access: ClassVar[AccessRight] = NOTHING
    group: str
    client_id: str
    with_stacks: bool = False
    """What its threads are doing, too."""


class ConsumeResult(enum.Enum):
    """How a message was consumed that a tool had handed to a member."""

    SUCCESS = "CR_SUCCESS"
    LATER = "CR_LATER"
    ROLLBACK = "CR_ROLLBACK"
    COMMIT = "CR_COMMIT"
    EXCEPTION = "CR_THROW_EXCEPTION"
    RETURN_NULL = "CR_RETURN_NULL"


@dataclass(frozen=True, slots=True)
class ConsumeDirectlyReply(Reply):
    """What the listener did."""

    result: ConsumeResult
    spent_ms: int = 0
    is_orderly: bool = False
    auto_commit: bool = True
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ConsumeDirectly(Request[ConsumeDirectlyReply]):
    """309: a tool wants this message consumed by this member, and to know how that went."""

    access: ClassVar[AccessRight] = JOIN_GROUP_OR_ADMIN
    group: str
    client_id: str
    message_id: str
    broker: str
    record: bytes
    """The message as stored."""
