"""Requests about topics: routes, configurations, statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.limits import ROUTE_QUEUES_MAX
from rocketmq_wire.model import QueueId, QueueSet, QueueStats, Route, TopicConfig
from rocketmq_wire.requests import permissions
from rocketmq_wire.requests.contract import Done, Reply, Request


@dataclass(frozen=True, slots=True)
class RouteReply(Reply):
    """Raises RemoteProtocolError for more queues than any cluster has."""

    route: Route

    def __post_init__(self) -> None:
        for name in ("read_queue_count", "write_queue_count"):
            count = sum(max(0, getattr(queues, name)) for queues in self.route.queue_sets)
            if count > ROUTE_QUEUES_MAX:
                raise RemoteProtocolError(
                    f"a route with {count} queues is over the limit of {ROUTE_QUEUES_MAX}"
                )


@dataclass(frozen=True, slots=True)
class GetRoute(Request[RouteReply]):
    """105: the brokers and queues of a topic. Raises TopicNotFoundError (17)."""

    access = permissions.GET_ROUTE
    to_name_server = True
    topic: str
    standard_json: bool = True
    """False for old clients, which read numeric map keys only without quotes."""


@dataclass(frozen=True, slots=True)
class TopicsReply(Reply):
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListTopics(Request[TopicsReply]):
    """206: the topics of all brokers."""

    access = permissions.NOTHING
    to_name_server = True


@dataclass(frozen=True, slots=True)
class DeleteTopicFromNameServer(Request[Done]):
    """216: delete a topic's routes."""

    access = permissions.ADMIN
    to_name_server = True
    topic: str


@dataclass(frozen=True, slots=True)
class RegisterTopic(Request[Done]):
    """217: a registered broker's queues of one topic; some brokers of 5.x send it."""

    access = permissions.ADMIN
    to_name_server = True
    topic: str
    queue_sets: tuple[QueueSet, ...]


@dataclass(frozen=True, slots=True)
class CreateTopic(Request[Done]):
    """17: create a topic or change it."""

    access = permissions.ADMIN
    config: TopicConfig
    default_topic: str = "TBW102"


@dataclass(frozen=True, slots=True)
class DeleteTopic(Request[Done]):
    """215: delete a topic from one broker."""

    access = permissions.ADMIN
    topic: str


@dataclass(frozen=True, slots=True)
class TopicConfigsReply(Reply):
    configs: tuple[TopicConfig, ...]


@dataclass(frozen=True, slots=True)
class ListTopicConfigs(Request[TopicConfigsReply]):
    """21: the topics of one broker."""

    access = permissions.NOTHING


@dataclass(frozen=True, slots=True)
class GetTopicConfig(Request[TopicConfigsReply]):
    """351: one topic of a broker; tools of 5.x ask this before anything else about a topic.

    Raises TopicNotFoundError (17). Brokers of 4.9 do not know it.
    """

    access = permissions.GET_TOPIC
    topic: str


@dataclass(frozen=True, slots=True)
class TopicStatsReply(Reply):
    queues: Mapping[QueueId, QueueStats]
    is_current: bool = field(default=True, compare=False)
    """False if a replica answered."""


@dataclass(frozen=True, slots=True)
class GetTopicStats(Request[TopicStatsReply]):
    """202: bounds and newest store time of every queue of one broker in one call."""

    access = permissions.GET_TOPIC
    topic: str
