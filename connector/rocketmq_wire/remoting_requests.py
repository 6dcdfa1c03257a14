"""Requests that only the TCP protocol has: what Java clients and brokers exchange besides."""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_wire.model import Subscription
from rocketmq_wire.requests import Done, Request


@dataclass(frozen=True, slots=True)
class NotifyMembersChanged(Request[Done]):
    """40, oneway from the broker to a client: the members of its consumer group changed."""

    group: str


@dataclass(frozen=True, slots=True)
class CheckSubscription(Request[Done]):
    """46: would the broker take this subscription? Raises BrokerError (23 or 1)."""

    client_id: str
    group: str
    topic: str
    subscription: Subscription
