"""One frozen class per request and per reply. Both protocols and the broker's engine speak these.

A request names its reply type, its access right, whether it may be repeated after a broken
connection, and who answers it. How it looks on the wire is in `remoting` (TCP) and `grpc_mapping`
(gRPC).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Generic, TypeVar

from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import (
    Buffer,
    ClusterInfo,
    CommittedOffset,
    ConsumerInfo,
    QueueId,
    QueueStats,
    Route,
    Subscription,
    TopicConfig,
)
from rocketmq_wire.requests.permissions import (
    ADMIN,
    CONSUME,
    GET_COMMITTED,
    GET_ROUTE,
    GET_TOPIC,
    JOIN_GROUP,
    NOTHING,
    PUBLISH_OR_RETRY,
    AccessRight,
    Permission,
    Resources,
    named_by_fields,
    plain_topics,
    retry_groups,
    unique,
)


class Reply:
    """Base of all replies."""

    __slots__ = ()


R = TypeVar("R", bound=Reply, covariant=True)


class Request(Generic[R]):
    """Base of all requests; `R` is the reply's type."""

    __slots__ = ()
    access: ClassVar[AccessRight]
    """Every request class declares its own."""
    repeatable: ClassVar[bool] = True
    to_name_server: ClassVar[bool] = False

    def resources(self) -> Resources:
        """The topics and groups that the access right is about."""
        return named_by_fields(self)

    def permissions(self) -> tuple[Permission, ...]:
        """What the sender must be allowed to do; all of it."""
        return self.access.on(self.resources())


class SendRequest(Request[R]):
    """Base of requests that store messages in a queue."""

    __slots__ = ()
    queue: QueueId

    def resources(self) -> Resources:
        """The topic alone, or the groups: a consumer may send to its group's retry topic."""
        named = named_by_fields(self)
        return Resources(named.topics) if named.topics else named


@dataclass(frozen=True, slots=True)
class Done(Reply):
    """Success with nothing to tell."""

    remark: str = ""


@dataclass(frozen=True, slots=True)
class OffsetReply(Reply):
    """One offset or timestamp."""

    value: int
    is_current: bool = field(default=True, compare=False)
    """False when a replica answered, which the wire does not say: whoever knows sets it."""


# --- name server ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RouteReply(Reply):
    route: Route


@dataclass(frozen=True, slots=True)
class GetRoute(Request[RouteReply]):
    """105. Raises TopicNotFoundError (17)."""

    access: ClassVar[AccessRight] = GET_ROUTE
    to_name_server: ClassVar[bool] = True
    topic: str
    standard_json: bool = True
    """False for old clients, which read numeric map keys only without quotes."""


@dataclass(frozen=True, slots=True)
class ClusterReply(Reply):
    cluster: ClusterInfo


@dataclass(frozen=True, slots=True)
class GetCluster(Request[ClusterReply]):
    """106."""

    access: ClassVar[AccessRight] = NOTHING
    to_name_server: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class TopicsReply(Reply):
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListTopics(Request[TopicsReply]):
    """206."""

    access: ClassVar[AccessRight] = NOTHING
    to_name_server: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class DeleteTopicFromNameServer(Request[Done]):
    """216."""

    access: ClassVar[AccessRight] = ADMIN
    to_name_server: ClassVar[bool] = True
    topic: str


# --- clients and groups ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heartbeat(Request[Done]):
    """34."""

    access: ClassVar[AccessRight] = CONSUME
    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerInfo, ...] = ()
    language: str = field(default="", compare=False)
    """With `version`, what the client says of itself with every request: a decoder fills it in."""
    version: int = field(default=0, compare=False)

    def resources(self) -> Resources:
        """The subscribed topics, and the groups of consumers and of subscribed retry topics."""
        topics = [topic for one in self.consumers for topic, *_ in one.subscriptions]
        groups = (one.group for one in self.consumers)
        return Resources(plain_topics(topics), unique((*groups, *retry_groups(topics))))


@dataclass(frozen=True, slots=True)
class UnregisterClient(Request[Done]):
    """35."""

    access: ClassVar[AccessRight] = JOIN_GROUP
    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True)
class ClientsReply(Reply):
    client_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListGroupClients(Request[ClientsReply]):
    """38. A group with nobody online answers code 1: the codec turns that into an empty reply."""

    access: ClassVar[AccessRight] = JOIN_GROUP
    group: str


# --- offsets --------------------------------------------------------------------------------


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


# --- pull -----------------------------------------------------------------------------------


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


# --- send -----------------------------------------------------------------------------------


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


# --- administration -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTopic(Request[Done]):
    """17: creates a topic or changes it."""

    access: ClassVar[AccessRight] = ADMIN
    config: TopicConfig
    default_topic: str = "TBW102"


@dataclass(frozen=True, slots=True)
class DeleteTopic(Request[Done]):
    """215."""

    access: ClassVar[AccessRight] = ADMIN
    topic: str


@dataclass(frozen=True, slots=True)
class TopicConfigsReply(Reply):
    configs: tuple[TopicConfig, ...]


@dataclass(frozen=True, slots=True)
class ListTopicConfigs(Request[TopicConfigsReply]):
    """21."""

    access: ClassVar[AccessRight] = NOTHING


@dataclass(frozen=True, slots=True)
class TopicStatsReply(Reply):
    queues: Mapping[QueueId, QueueStats]
    is_current: bool = field(default=True, compare=False)
    """False on a replica's word."""


@dataclass(frozen=True, slots=True)
class GetTopicStats(Request[TopicStatsReply]):
    """202: bounds and newest store time of every queue of one broker in one call."""

    access: ClassVar[AccessRight] = GET_TOPIC
    topic: str


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
class GroupsReply(Reply):
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListGroups(Request[GroupsReply]):
    """Groups with a configuration or stored progress (201, GET_ALL_SUBSCRIPTIONGROUP_CONFIG)."""

    access: ClassVar[AccessRight] = NOTHING
