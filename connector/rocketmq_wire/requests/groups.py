"""Requests about clients and groups: heartbeats, members, configurations, queue locks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from rocketmq_wire.fastjson import Json
from rocketmq_wire.model import ConsumerInfo, QueueId, Subscription
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.permissions import (
    ADMIN,
    CONSUME,
    GET_TOPIC,
    JOIN_GROUP,
    JOIN_GROUP_OR_ADMIN,
    NOTHING,
    AccessRight,
    Resources,
    plain_topics,
    retry_groups,
    unique,
)


@dataclass(frozen=True, slots=True)
class Heartbeat(Request[Done]):
    """34: keep a client's groups and subscriptions known to a broker."""

    access: ClassVar[AccessRight] = CONSUME
    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerInfo, ...] = ()
    language: str = field(default="", compare=False)
    """With `version`, a field of every request's header; only decoders set them."""
    version: int = field(default=0, compare=False)

    def resources(self) -> Resources:
        """The subscribed topics, and the groups of consumers and of subscribed retry topics."""
        topics = [topic for one in self.consumers for topic, *_ in one.subscriptions]
        groups = (one.group for one in self.consumers)
        return Resources(plain_topics(topics), unique((*groups, *retry_groups(topics))))


@dataclass(frozen=True, slots=True)
class UnregisterClient(Request[Done]):
    """35: remove a client from its groups."""

    access: ClassVar[AccessRight] = JOIN_GROUP
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

    access: ClassVar[AccessRight] = JOIN_GROUP
    group: str


@dataclass(frozen=True, slots=True)
class NotifyMembersChanged(Request[Done]):
    """40, oneway from the broker to a client: the members of its consumer group changed."""

    access: ClassVar[AccessRight] = JOIN_GROUP_OR_ADMIN
    group: str


@dataclass(frozen=True, slots=True)
class CheckSubscription(Request[Done]):
    """46: check that the broker takes a subscription. Raises BrokerError (23 or 1)."""

    access: ClassVar[AccessRight] = GET_TOPIC
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

    access: ClassVar[AccessRight] = NOTHING


@dataclass(frozen=True, slots=True)
class ListTopicGroups(Request[GroupsReply]):
    """300: list the groups that consume a topic or have consumed it."""

    access: ClassVar[AccessRight] = GET_TOPIC
    topic: str


@dataclass(frozen=True, slots=True)
class PutGroup(Request[Done]):
    """200: create a consumer group or change it."""

    access: ClassVar[AccessRight] = ADMIN
    settings: Mapping[str, Json]
    """As in `subscriptionGroup.json`, with the name under `groupName`."""


@dataclass(frozen=True, slots=True)
class DeleteGroup(Request[Done]):
    """207: delete a group from one broker."""

    access: ClassVar[AccessRight] = ADMIN
    group: str
    forgets_offsets: bool = False


@dataclass(frozen=True, slots=True)
class QueuesReply(Reply):
    """Some queues, sorted."""

    queues: tuple[QueueId, ...]


@dataclass(frozen=True, slots=True)
class LockQueues(Request[QueuesReply]):
    """41: own queues of one broker for a minute; the reply names the queues now owned."""

    access: ClassVar[AccessRight] = JOIN_GROUP_OR_ADMIN
    group: str
    client_id: str
    queues: tuple[QueueId, ...]


@dataclass(frozen=True, slots=True)
class UnlockQueues(Request[Done]):
    """42: release queues; the broker ignores queues that others own."""

    access: ClassVar[AccessRight] = JOIN_GROUP_OR_ADMIN
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

    access: ClassVar[AccessRight] = NOTHING
    group: str


@dataclass(frozen=True, slots=True)
class ProducersReply(Reply):
    connections: tuple[Connection, ...]


@dataclass(frozen=True, slots=True)
class GetProducers(Request[ProducersReply]):
    """204: the producers of a group. Raises BrokerError (1) if none is online."""

    access: ClassVar[AccessRight] = NOTHING
    group: str
