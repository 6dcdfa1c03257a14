"""The broker's names and address, and its own entry in a name server's table."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_broker.engine.core.topics import Topics
from rocketmq_wire import model

LOOPBACK = bytes((127, 0, 0, 1))
WILDCARDS = ("0.0.0.0", "::", "")
"""Hosts that mean every address: no client can connect to them."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The broker's names, and the address by which clients reach it."""

    broker_name: str
    cluster_name: str
    host: str = ""
    """Empty: each client gets the address that it connected to."""
    port: int = 0
    store_host: model.Host = model.Host(LOOPBACK, 0)  # noqa: RUF009 - a frozen value
    """The host in records. Always IPv4: senders lay records out before the broker sees them."""

    def address(self, peer: Peer) -> str:
        """The address that this client is to connect to."""
        reached = peer.local_host if peer.local_host not in WILDCARDS else ""
        host = self.host or reached or "127.0.0.1"
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


class OwnBroker:
    """The broker itself in its name server's table: its topics are its routes."""

    def __init__(self, identity: Identity, topics: Topics) -> None:
        self._identity = identity
        self._topics = topics
        self._may_write = True
        """A tool's override of the topics' write permissions."""
        self._override_version = -1
        """The version of the topics for which it is valid.

        RocketMQ's brokers register changed topics again, which ends the override.
        """

    def addresses(self, peer: Peer) -> model.BrokerAddresses:
        identity = self._identity
        return model.BrokerAddresses(
            identity.broker_name, identity.cluster_name, {model.MASTER_ID: identity.address(peer)}
        )

    def topics(self) -> Collection[str]:
        return [config.name for config in self._topics.all()]

    def queue_set(self, topic: str) -> model.QueueSet | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        return model.QueueSet(
            self._identity.broker_name,
            config.read_queue_count,
            config.write_queue_count,
            self._permission_of(config),
            config.sys_flag,
        )

    def set_write_permission(self, *, may_write: bool) -> int:
        self._may_write = may_write
        self._override_version = self._topics.version
        return len(self._topics.all())

    def _permission_of(self, config: model.TopicConfig) -> int:
        if self._override_version != self._topics.version:
            return config.permission
        if self._may_write:
            return model.PERMISSION_READ | model.PERMISSION_WRITE
        return config.permission & ~model.PERMISSION_WRITE


@lru_cache(maxsize=4_096)
def record_host(host: str, port: int) -> model.Host:
    """An address as records store it: loopback if `host` is no IP address."""
    try:
        return model.Host(ipaddress.ip_address(host.partition("%")[0]).packed, port)
    except ValueError:
        return model.Host(LOOPBACK, port)
