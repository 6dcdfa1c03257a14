"""Routes and cluster data, as a name server of this one broker answers them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import lru_cache

from rocketmq_broker.engine.core import refusals
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


@dataclass(frozen=True, slots=True)
class WritePermission:
    """A tool's override of the topics' write permissions, valid until the topics change.

    With a real name server, the broker then registers its topics again and so ends the override.
    """

    may_write: bool = True
    version: int = -1
    """The version of the topics' table that it is valid for."""

    def of(self, permission: int, version: int) -> int:
        """A topic's permission in routes."""
        if version != self.version:
            return permission
        if self.may_write:
            return model.PERMISSION_READ | model.PERMISSION_WRITE
        return permission & ~model.PERMISSION_WRITE


def route_of(
    topics: Topics, identity: Identity, topic: str, peer: Peer, permission: WritePermission
) -> model.Route:
    """The route of a topic, or its refusal (17)."""
    config = topics.get(topic)
    if config is None:
        raise refusals.route_missing(topic)
    return model.Route(
        queue_sets=(
            model.QueueSet(
                identity.broker_name,
                config.read_queue_count,
                config.write_queue_count,
                permission.of(config.permission, topics.version),
                config.sys_flag,
            ),
        ),
        brokers=(_addresses(identity, peer),),
    )


def cluster_of(identity: Identity, peer: Peer) -> model.ClusterInfo:
    return model.ClusterInfo(
        brokers=(_addresses(identity, peer),),
        clusters={identity.cluster_name: (identity.broker_name,)},
    )


def _addresses(identity: Identity, peer: Peer) -> model.BrokerAddresses:
    return model.BrokerAddresses(
        identity.broker_name, identity.cluster_name, {model.MASTER_ID: identity.address(peer)}
    )


@lru_cache(maxsize=4_096)
def record_host(host: str, port: int) -> model.Host:
    """An address as records store it: loopback if `host` is no IP address."""
    try:
        return model.Host(ipaddress.ip_address(host.partition("%")[0]).packed, port)
    except ValueError:
        return model.Host(LOOPBACK, port)
