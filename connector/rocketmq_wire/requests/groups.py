"""Requests about clients and groups: heartbeats, members, settings, queue locks and assignment."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketmq_wire.fastjson import Json
from rocketmq_wire.model import ConsumerInfo, QueueId, Subscription
from rocketmq_wire.requests import permissions
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.permissions import Resources


@dataclass(frozen=True, slots=True)
class Heartbeat(Request[Done]):
    """34: keep a client's groups and subscriptions known to a broker."""

    access = permissions.CONSUME
    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerInfo, ...] = ()
    language: str = field(default="", compare=False)
    """With `version`, a field of every request's header; only decoders set them."""
    version: int = field(default=0, compare=False)

    def resources(self) -> Resources:
        """The subscribed topics, and the groups of consumers and of subscribed retry topics."""
        topics = (topic for one in self.consumers for topic, *_ in one.subscriptions)
        return permissions.resources_of(topics, (one.group for one in self.consumers))


@dataclass(frozen=True, slots=True)
class UnregisterClient(Request[Done]):
    """35: remove a client from its groups."""

    access = permissions.JOIN_GROUP
    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True)
class ClientsReply(Reply):
    client_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListGroupClients(Request[ClientsReply]):
    """38: the members of a group.

    The broker answers code 1 for a group without members; the codec returns an empty reply.
    """

    access = permissions.JOIN_GROUP
    group: str


@dataclass(frozen=True, slots=True)
class NotifyMembersChanged(Request[Done]):
    """40, oneway from the broker to a client: the members of its consumer group changed."""

    access = permissions.JOIN_GROUP_OR_ADMIN
    group: str


@dataclass(frozen=True, slots=True)
class CheckSubscription(Request[Done]):
    """46: check that the broker takes a subscription. Raises BrokerError (23 or 1)."""

    access = permissions.GET_CONSUMPTION
    client_id: str
    group: str
    topic: str
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class GroupsReply(Reply):
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListGroups(Request[GroupsReply]):
    """201: the groups of a broker, with a configuration or committed offsets."""

    access = permissions.NOTHING


@dataclass(frozen=True, slots=True)
class ListTopicGroups(Request[GroupsReply]):
    """300: list the groups that consume a topic or have consumed it."""

    access = permissions.GET_TOPIC
    topic: str


@dataclass(frozen=True, slots=True)
class PutGroup(Request[Done]):
    """200: create a consumer group or change it."""

    access = permissions.ADMIN
    settings: Mapping[str, Json]
    """As in `subscriptionGroup.json`, with the name under `groupName`."""


@dataclass(frozen=True, slots=True)
class DeleteGroup(Request[Done]):
    """207: delete a group from one broker."""

    access = permissions.ADMIN
    group: str
    forgets_offsets: bool = False


@dataclass(frozen=True, slots=True)
class QueuesReply(Reply):
    """Some queues, sorted."""

    queues: tuple[QueueId, ...]


@dataclass(frozen=True, slots=True)
class LockQueues(Request[QueuesReply]):
    """41: own queues of one broker for a minute; the reply names the queues now owned."""

    access = permissions.CONSUME_OR_ADMIN
    group: str
    client_id: str
    queues: tuple[QueueId, ...]


@dataclass(frozen=True, slots=True)
class UnlockQueues(Request[Done]):
    """42: release queues; the broker ignores queues that others own."""

    access = permissions.CONSUME_OR_ADMIN
    group: str
    client_id: str
    queues: tuple[QueueId, ...]


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
    """203: the consumers of a group. Raises BrokerError (206) if none is online."""

    access = permissions.GET_GROUP
    group: str


@dataclass(frozen=True, slots=True)
class ProducersReply(Reply):
    connections: tuple[Connection, ...]


@dataclass(frozen=True, slots=True)
class GetProducers(Request[ProducersReply]):
    """204: the producers of a group. Raises BrokerError (1) if none is online."""

    access = permissions.GET_CLUSTER
    group: str


class ConsumeMode(enum.Enum):
    """How the members of a group get a topic's messages."""

    PULL = "PULL"
    """Each queue belongs to one member, which pulls it."""
    POP = "POP"
    """The broker hands out messages to any member."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A queue, or a broker's queues (`ANY_QUEUE`), and how to get their messages."""

    mode: ConsumeMode
    queue: QueueId


@dataclass(frozen=True, slots=True)
class AssignmentReply(Reply):
    """The queues that a member is to consume; None: it keeps its queues."""

    assignments: tuple[Assignment, ...] | None


@dataclass(frozen=True, slots=True)
class QueryAssignment(Request[AssignmentReply]):
    """400: ask the broker which queues of a topic this member is to consume."""

    access = permissions.CONSUME
    group: str
    topic: str
    client_id: str
    strategy: str = "AVG"
    """Brokers know AVG and AVG_BY_CIRCLE."""
    message_model: str = "CLUSTERING"


@dataclass(frozen=True, slots=True)
class SetConsumeMode(Request[Done]):
    """401: make a group's members pull or pop a topic. Raises BrokerError: 16, 17, 26."""

    access = permissions.ADMIN
    group: str
    topic: str
    mode: ConsumeMode
    share_queue_count: int = 0
    """The number of following members whose queues each member pops, too; 0: all pop all."""
