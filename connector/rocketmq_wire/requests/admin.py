"""What administrators' tools ask of brokers and name servers over TCP, and what they hear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from rocketmq_wire.fastjson import Json
from rocketmq_wire.model import Buffer, CommittedOffset, QueueId, Subscription
from rocketmq_wire.requests.core import ConsumeStatsReply, Done, GroupsReply, Reply, Request
from rocketmq_wire.requests.permissions import ADMIN, GET_TOPIC, NOTHING, SUBSCRIBE, AccessRight

# --- settings -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettingsReply(Reply):
    """Names and values as RocketMQ writes them into its configuration files."""

    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GetBrokerSettings(Request[SettingsReply]):
    """26."""

    access: ClassVar[AccessRight] = NOTHING


@dataclass(frozen=True, slots=True)
class GetNameServerSettings(Request[SettingsReply]):
    """319."""

    access: ClassVar[AccessRight] = NOTHING
    to_name_server: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ChangeBrokerSettings(Request[Done]):
    """25: change settings of a running broker. Names that it does not know are ignored."""

    access: ClassVar[AccessRight] = ADMIN
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GetRuntimeInfo(Request[SettingsReply]):
    """28: what a broker counts and measures of itself."""

    access: ClassVar[AccessRight] = NOTHING


@dataclass(frozen=True, slots=True)
class CleanConsumeQueues(Request[Done]):
    """306: drop consume-queue files of which the log has expired."""

    access: ClassVar[AccessRight] = ADMIN


@dataclass(frozen=True, slots=True)
class CountReply(Reply):
    count: int


@dataclass(frozen=True, slots=True)
class WipeWritePermission(Request[CountReply]):
    """205: tell clients to write nothing to a broker any more; the reply counts its topics."""

    access: ClassVar[AccessRight] = ADMIN
    to_name_server: ClassVar[bool] = True
    broker: str


@dataclass(frozen=True, slots=True)
class AddWritePermission(Request[CountReply]):
    """327: take `WipeWritePermission` back."""

    access: ClassVar[AccessRight] = ADMIN
    to_name_server: ClassVar[bool] = True
    broker: str


@dataclass(frozen=True, slots=True)
class DeleteNameServerEntry(Request[Done]):
    """102: forget an entry of a name server's own table; tools do so with a topic's order."""

    access: ClassVar[AccessRight] = ADMIN
    to_name_server: ClassVar[bool] = True
    namespace: str
    key: str


# --- groups ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutGroup(Request[Done]):
    """200: create a consumer group or change it."""

    access: ClassVar[AccessRight] = ADMIN
    settings: Mapping[str, Json]
    """As in `subscriptionGroup.json`, with the name under `groupName`."""


@dataclass(frozen=True, slots=True)
class DeleteGroup(Request[Done]):
    """207."""

    access: ClassVar[AccessRight] = ADMIN
    group: str
    forgets_offsets: bool = False


@dataclass(frozen=True, slots=True)
class ListTopicGroups(Request[GroupsReply]):
    """300: the groups that consume a topic or have consumed it."""

    access: ClassVar[AccessRight] = GET_TOPIC
    topic: str


@dataclass(frozen=True, slots=True)
class Connection:
    """One client online."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class ConsumersReply(Reply):
    connections: tuple[Connection, ...]
    consume_type: str
    message_model: str
    consume_from: str
    subscriptions: Mapping[str, tuple[Subscription, int]]
    """By topic, with its version."""


@dataclass(frozen=True, slots=True)
class GetConsumers(Request[ConsumersReply]):
    """203. Raises BrokerError (206) when none is online."""

    access: ClassVar[AccessRight] = NOTHING
    group: str


@dataclass(frozen=True, slots=True)
class ProducersReply(Reply):
    connections: tuple[Connection, ...]


@dataclass(frozen=True, slots=True)
class GetProducers(Request[ProducersReply]):
    """204. Raises BrokerError (1) when none is online."""

    access: ClassVar[AccessRight] = NOTHING
    group: str


@dataclass(frozen=True, slots=True)
class QueueOffsetsReply(Reply):
    offsets: Mapping[QueueId, int]


@dataclass(frozen=True, slots=True)
class ResetClientOffsets(Request[QueueOffsetsReply]):
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


# --- messages -------------------------------------------------------------------------------


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
