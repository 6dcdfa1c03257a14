"""Requests that read, send, send back, look up or recall messages."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Buffer, QueueId, Subscription
from rocketmq_wire.requests import permissions
from rocketmq_wire.requests.contract import Done, R, Reply, Request
from rocketmq_wire.requests.permissions import Resources


class PullStatus(enum.Enum):
    """The outcome of a pull; the value is its response code."""

    FOUND = 0
    NO_NEW_MESSAGE = 19
    NO_MATCHED_MESSAGE = 20
    OFFSET_ILLEGAL = 21


LOST_REMARK: Final = "MESSAGE_WAS_LOST"
"""The bundled broker's remark beside NO_MATCHED_MESSAGE for offsets that a repair gave up."""


@dataclass(frozen=True, slots=True)
class PullReply(Reply):
    """A pull's answer: whole records, and the offset of the next pull."""

    status: PullStatus
    next_begin: int
    start: int
    """The queue's first offset."""
    end: int
    """The next offset to be written to the queue."""
    records: tuple[Buffer, ...] = ()
    """Stored records back to back; the parts follow each other, none of them empty."""
    sizes: Buffer | None = None
    """Little-endian int32 sizes of the records, if the sender knows them (gRPC sends them)."""
    suggested_broker_id: int = 0
    remark: str = ""


@dataclass(frozen=True, slots=True)
class PullReplies(Reply):
    """The single answers to joined pulls, if any differs from the plan."""

    answers: tuple[PullReply | RocketMQError, ...]


@dataclass(frozen=True, slots=True)
class PullMessages(Request[PullReply]):
    """11: read at most `count_max` messages of `queue` from offset `start` on."""

    access = permissions.CONSUME
    group: str
    queue: QueueId
    start: int
    count_max: int
    bytes_max: int | None = None
    subscription: Subscription = field(default_factory=Subscription)
    subscription_version: int = 0
    uses_registered_subscription: bool = False
    """True leaves out sysFlag 0x4: the broker then filters by the group's heartbeat."""
    commit: int | None = None
    """The committed offset to store with the pull (sysFlag 0x1); None commits nothing."""
    suspend_ms: int | None = None
    """How long the broker may hold the pull if no message is there (0x2); None: not at all."""
    times: int = 1
    """The number of joined pulls over TCP, each `count_max` offsets after the one before.

    The answer is one `PullReply` for all of them, or `PullReplies`.
    """


@dataclass(frozen=True, slots=True)
class SendRequest(Request[R]):
    """Base of requests that store messages in a queue."""

    repeatable = False
    group: str
    queue: QueueId

    def resources(self) -> Resources:
        """The topic alone, or the groups: a consumer may send to its group's retry topic."""
        named = permissions.named_by_fields(self)
        return Resources(named.topics) if named.topics else named


class SendStatus(enum.Enum):
    """All four mean *stored*; the value is the response code."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


@dataclass(frozen=True, slots=True)
class SendReply(Reply):
    """The position of the stored message, or of the first of a batch."""

    status: SendStatus
    message_id: str
    """Offset message id; those of a batch are joined by commas."""
    queue_index: int
    start: int
    transaction_id: str | None = None
    count: int = 1
    recall_handle: str | None = None
    """The handle that recalls a delayed message (`RecallMessage`)."""


@dataclass(frozen=True, slots=True)
class SendMessage(SendRequest[SendReply]):
    """10 and 310. A negative queue index lets the broker choose."""

    access = permissions.PUBLISH
    born_ms: int
    body: Buffer
    properties: bytes = b""
    """As encoded by `properties.encode_properties`."""
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    reconsume_times_max: int | None = None
    default_queue_count: int = 4
    """The topic's number of queues if the broker has to create it."""


@dataclass(frozen=True, slots=True)
class SendBatch(SendRequest[SendReply]):
    """320: one body of batch entries (see `batch`), all for one queue."""

    access = permissions.PUBLISH
    born_ms: int
    body: Buffer
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    default_queue_count: int = 4


@dataclass(frozen=True, slots=True)
class SendRecords(SendRequest[SendReply]):
    """Only in the bulk gRPC service: whole records; the broker sets offsets, times and hosts."""

    access = permissions.PUBLISH
    records: Buffer
    sizes: Buffer | None = None
    """Little-endian int32 sizes of the records."""


@dataclass(frozen=True, slots=True)
class SendBack(Request[Done]):
    """36: make the broker deliver a message that was not consumed to the group again, later.

    The broker also requires `CONSUME` on the topic that holds the message. Raises
    GroupNotFoundError (26), and BrokerError (1) if no message is at that position.
    """

    access = permissions.JOIN_GROUP
    # A repeated request would make a second copy.
    repeatable = False
    group: str
    physical_offset: int
    """The record's position in the broker's log."""
    delay_level: int = 0
    """0: the broker derives it from the attempts; below 0: straight to the dead-letter topic."""
    message_id: str = ""
    topic: str = ""
    """The topic to which the producer sent the message."""
    attempts_max: int | None = None
    """The attempts after which it is a dead letter; None: the group's configuration decides."""

    def resources(self) -> Resources:
        """The group: clients may name any topic beside the position."""
        return Resources(groups=(self.group,))


@dataclass(frozen=True, slots=True)
class RecordsReply(Reply):
    """Stored records back to back."""

    records: tuple[Buffer, ...]
    index_end_ms: int = 0
    """With `index_end`, store time and log position of the newest message in the index."""
    index_end: int = 0


@dataclass(frozen=True, slots=True)
class ViewMessage(Request[RecordsReply]):
    """33: read the message at a position in the log. Raises BrokerError (1).

    The broker also requires `CONSUME` on the topic that holds the message.
    """

    access = permissions.CONSUME
    physical_offset: int
    topic: str = ""

    def resources(self) -> Resources:
        """The topic, if the request names one: tools of 4.9 do not."""
        return permissions.resources_of((self.topic,) if self.topic else ())


@dataclass(frozen=True, slots=True)
class QueryMessages(Request[RecordsReply]):
    """12: find messages by key, newest first; brokers of RocketMQ add other keys' of one hash.

    Raises ProgressNotFoundError (22) if there are none.
    """

    access = permissions.CONSUME
    topic: str
    key: str
    count_max: int
    begin_ms: int
    end_ms: int
    is_unique_key: bool = field(default=False)
    """True if the key is a message's own id: the broker's own limit replaces `count_max`."""


@dataclass(frozen=True, slots=True)
class RecallReply(Reply):
    message_id: str
    """The recalled message's unique key."""


@dataclass(frozen=True, slots=True)
class RecallMessage(Request[RecallReply]):
    """370: cancel the delivery of a delayed message.

    Raises BrokerError: 604 for a handle that names no waiting message, 17 for its topic, 3 by
    brokers before 5.3.2, 16 by brokers without recallMessageEnable.
    """

    access = permissions.PUBLISH
    topic: str
    handle: str
    group: str = ""
    broker: str = ""

    def resources(self) -> Resources:
        """The topic, without the producer group."""
        return permissions.resources_of((self.topic,))
