"""Requests that only the TCP protocol has: what Java clients and brokers exchange besides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rocketmq_wire.model import Subscription
from rocketmq_wire.requests.core import Done, Request, TopicConfigsReply
from rocketmq_wire.requests.permissions import GET_TOPIC, JOIN_GROUP_OR_ADMIN, AccessRight


@dataclass(frozen=True, slots=True)
class NotifyMembersChanged(Request[Done]):
    """40, oneway from the broker to a client: the members of its consumer group changed."""

    access: ClassVar[AccessRight] = JOIN_GROUP_OR_ADMIN
    group: str


@dataclass(frozen=True, slots=True)
class CheckSubscription(Request[Done]):
    """46: would the broker take this subscription? Raises BrokerError (23 or 1)."""

    access: ClassVar[AccessRight] = GET_TOPIC
    client_id: str
    group: str
    topic: str
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class GetTopicConfig(Request[TopicConfigsReply]):
    """351: one topic as the broker keeps it; tools of 5.x ask this before anything about a topic.

    Raises TopicNotFoundError (17). Brokers of 4.9 do not know it.
    """

    access: ClassVar[AccessRight] = GET_TOPIC
    topic: str
