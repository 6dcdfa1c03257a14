"""Requests that read, send, send back, look up or recall messages."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import ClassVar, Final

from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Buffer, QueueId, Subscription
from rocketmq_wire.requests.contract import Done, R, Reply, Request
from rocketmq_wire.requests.permissions import (
    ADMIN,
    CONSUME,
    JOIN_GROUP,
    PUBLISH,
    PUBLISH_OR_RETRY,
    SUBSCRIBE,
    AccessRight,
    Resources,
    named_by_fields,
)


class PullStatus(enum.Enum):
    """What became of a pull; the value is its response code."""

    FOUND = 0
    NO_NEW_MESSAGE = 19
    NO_MATCHED_MESSAGE = 20
    OFFSET_ILLEGAL = 21


LOST_REMARK: Final = "MESSAGE_WAS_LOST"
"""Our broker's word beside NO_MATCHED_MESSAGE for offsets that a repair of its store gave up."""


@dataclass(frozen=True, slots=True)
class PullReply(Reply):
    """A pull's answer: whole records, and where to go on."""

    status: PullStatus
    next_begin: int
    start: int
    """The queue's first offset."""
    end: int
    """The next offset to be written to the queue."""
    records: tuple[Buffer, ...] = ()
    """Stored records back to back; the parts follow each other, none of them empty."""
    sizes: Buffer | None = None
    """Little-endian int32 sizes of the records, where the sender knows them (gRPC sends them)."""
    suggested_broker_id: int = 0
    remark: str = ""


@dataclass(frozen=True, slots=True)
class PullReplies(Reply):
    """The answers to pulls that were sent as one, where they are not what was planned."""

    answers: tuple[PullReply | RocketMQError, ...]


@dataclass(frozen=True, slots=True)
class PullMessages(Request[PullReply]):
    """11. Asks for at most `count_max` messages of `queue` from offset `start` on."""

    access: ClassVar[AccessRight] = CONSUME
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
    """Progress stored on the way (sysFlag 0x1); None commits nothing."""
    suspend_ms: int | None = None
    """How long the broker may hold the pull while nothing is there (0x2); None: not at all."""
    times: int = 1
    """Over TCP so many such pulls at once, each `count_max` offsets behind the one before.

    Their answers come as one, or as `PullReplies`.
    """


class SendRequest(Request[R]):
    """Base of requests that store messages in a queue."""

    __slots__ = ()
    queue: QueueId

    def resources(self) -> Resources:
        """The topic alone, or the groups: a consumer may send to its group's retry topic."""
        named = named_by_fields(self)
        return Resources(named.topics) if named.topics else named


class SendStatus(enum.Enum):
    """All four mean *stored*; the value is the response code."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


@dataclass(frozen=True, slots=True)
class SendReply(Reply):
    """Where the message, or the first of the batch, was stored."""

    status: SendStatus
    message_id: str
    """Offset message id; those of a batch are joined by commas."""
    queue_index: int
    start: int
    transaction_id: str | None = None
    count: int = 1
    recall_handle: str | None = None
    """By which a message that is delivered later can be recalled (`recall`)."""


@dataclass(frozen=True, slots=True)
class SendMessage(SendRequest[SendReply]):
    """10 and 310. A negative queue index lets the broker choose."""

    access: ClassVar[AccessRight] = PUBLISH_OR_RETRY
    repeatable: ClassVar[bool] = False
    group: str
    queue: QueueId
    born_ms: int
    body: Buffer
    properties: bytes = b""
    """As encoded by `properties.encode_properties`."""
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    reconsume_times_max: int | None = None
    default_queue_count: int = 4
    """Queues of the topic, should the broker have to create it."""


@dataclass(frozen=True, slots=True)
class SendBatch(SendRequest[SendReply]):
    """320: one body of batch entries (see `batch`), all for one queue."""

    access: ClassVar[AccessRight] = PUBLISH_OR_RETRY
    repeatable: ClassVar[bool] = False
    group: str
    queue: QueueId
    born_ms: int
    body: Buffer
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    default_queue_count: int = 4


@dataclass(frozen=True, slots=True)
class SendRecords(SendRequest[SendReply]):
    """Our gRPC service: records already laid out; the broker patches offsets, times and hosts."""

    access: ClassVar[AccessRight] = PUBLISH_OR_RETRY
    repeatable: ClassVar[bool] = False
    group: str
    queue: QueueId
    records: Buffer
    sizes: Buffer | None = None
    """Little-endian int32 sizes of the records."""


@dataclass(frozen=True, slots=True)
class SendBack(Request[Done]):
    """36: have a message that could not be consumed delivered to the group again, later.

    Raises GroupNotFoundError (26), and BrokerError (1) when no message is at that position.
    """

    access: ClassVar[AccessRight] = JOIN_GROUP
    # A second one would make a second copy.
    repeatable: ClassVar[bool] = False
    group: str
    physical_offset: int
    """Where the message's record begins in the broker's log."""
    delay_level: int = 0
    """0: by the attempts so far; below 0: straight to the dead letters."""
    message_id: str = ""
    topic: str = ""
    """The topic that the message was first sent to."""
    attempts_max: int | None = None
    """Beyond so many attempts it is a dead letter; None lets the group's configuration say."""


@dataclass(frozen=True, slots=True)
class RecordsReply(Reply):
    """Stored records back to back."""

    records: tuple[Buffer, ...]
    index_end_ms: int = 0
    """How far the index reached: store time and place in the log of what is newest in it."""
    index_end: int = 0


@dataclass(frozen=True, slots=True)
class ViewMessage(Request[RecordsReply]):
    """33: the message that begins at a place in the log. Raises BrokerError (1)."""

    # By its position in the log any message can be read, whatever topic is named beside it.
    access: ClassVar[AccessRight] = ADMIN
    physical_offset: int
    topic: str = ""


@dataclass(frozen=True, slots=True)
class QueryMessages(Request[RecordsReply]):
    """12: messages that may have a key, newest first; hashes collide, so look at the keys, too.

    Raises ProgressNotFoundError (22) when there are none.
    """

    access: ClassVar[AccessRight] = SUBSCRIBE
    topic: str
    key: str
    count_max: int
    begin_ms: int
    end_ms: int
    is_unique_key: bool = field(default=False)
    """The key is a message's own id: as many are found as the broker allows."""


@dataclass(frozen=True, slots=True)
class RecallReply(Reply):
    message_id: str
    """The recalled message's unique key."""


@dataclass(frozen=True, slots=True)
class RecallMessage(Request[RecallReply]):
    """370: do not deliver a message that waits for its time.

    Raises BrokerError: 604 for a handle that names no waiting message, 17 for its topic. Brokers
    before 5.3.2 do not know it (3), later ones take it only with recallMessageEnable (16).
    """

    access: ClassVar[AccessRight] = PUBLISH
    topic: str
    handle: str
    group: str = ""
    broker: str = ""
