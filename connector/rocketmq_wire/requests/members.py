"""Requests that a broker sends, or passes on from a tool, to one member of a group."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from rocketmq_wire.model import QueueId
from rocketmq_wire.requests import permissions
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.offsets import OffsetsReply


@dataclass(frozen=True, slots=True)
class RelayedReply(Reply):
    """A client's answer as received: tools read fields that brokers do not."""

    code: int
    remark: str | None
    ext_fields: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class ResetOffsets(Request[Done]):
    """220, oneway: make a member continue at these offsets, as an administrator decided."""

    access = permissions.ADMIN
    group: str
    topic: str
    offsets: Mapping[QueueId, int]


@dataclass(frozen=True, slots=True)
class GetClientOffsets(Request[OffsetsReply]):
    """221: ask a member for its offsets in its queues of a topic."""

    access = permissions.GET_TOPIC
    group: str
    topic: str


@dataclass(frozen=True, slots=True)
class MembersOffsetsReply(Reply):
    """Each member's offsets, by client id."""

    members: Mapping[str, Mapping[QueueId, int]]


@dataclass(frozen=True, slots=True)
class GetMembersOffsets(Request[MembersOffsetsReply]):
    """223: ask all members of a group for their offsets in a topic.

    Raises BrokerError (206) if no member is online.
    """

    access = permissions.GET_TOPIC
    group: str
    topic: str
    client_id: str = ""
    """Empty for all members."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as seen by the member that owns it. Times are in milliseconds of the epoch."""

    done: int
    count: int = 0
    """The number of messages that wait in the member."""
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
    """A member's rates in a topic, per second; times in milliseconds."""

    pull_ms: float = 0.0
    pulled: float = 0.0
    consume_ms: float = 0.0
    succeeded: float = 0.0
    failed: float = 0.0
    failed_in_hour: int = 0
    """The failed messages of the last hour."""


@dataclass(frozen=True, slots=True)
class RunningInfoReply(Reply):
    """The state of a member, as tools show it."""

    properties: Mapping[str, str]
    queues: Mapping[QueueId, QueueInfo]
    rates: Mapping[str, ConsumeRates]
    subscriptions: tuple[tuple[str, str, str, int], ...] = ()
    """(topic, expression, kind, version)"""


@dataclass(frozen=True, slots=True)
class GetRunningInfo(Request[RunningInfoReply]):
    """307: ask for a member's state. A tool asks the broker, which asks the member."""

    access = permissions.GET_GROUP
    group: str
    client_id: str
    with_stacks: bool = False
    """True adds the stacks of its threads."""


class ConsumeResult(enum.Enum):
    """The outcome of a message that a tool handed to a member."""

    SUCCESS = "CR_SUCCESS"
    LATER = "CR_LATER"
    ROLLBACK = "CR_ROLLBACK"
    COMMIT = "CR_COMMIT"
    EXCEPTION = "CR_THROW_EXCEPTION"
    RETURN_NULL = "CR_RETURN_NULL"


@dataclass(frozen=True, slots=True)
class ConsumeDirectlyReply(Reply):
    """The outcome of the listener's call."""

    result: ConsumeResult
    spent_ms: int = 0
    is_orderly: bool = False
    auto_commit: bool = True
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ConsumeDirectly(Request[ConsumeDirectlyReply]):
    """309: make a member consume one message and report the outcome.

    The broker also requires `CONSUME` on the topic that holds the message.
    """

    access = permissions.JOIN_GROUP_OR_ADMIN
    group: str
    client_id: str
    message_id: str
    broker: str
    record: bytes
    """The message as stored."""
