"""Requests of brokers to name servers: they register their topics, report, and leave."""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_wire.model import TopicConfig
from rocketmq_wire.requests import permissions
from rocketmq_wire.requests.contract import Done, Reply, Request


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The version of a broker's topics; name servers only compare it with the one before."""

    counter: int = 0
    timestamp_ms: int = 0
    state: int = 0
    """Grows with every change of the master, if a controller chooses it."""


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """One broker process: its names, its id (0 is the master), and its address."""

    cluster: str
    name: str
    id: int
    address: str


@dataclass(frozen=True, slots=True)
class RegisterReply(Reply):
    """What a replica learns about its master; both are empty for a master."""

    replication_address: str = ""
    master_address: str = ""


@dataclass(frozen=True, slots=True)
class RegisterBroker(Request[RegisterReply]):
    """103: register a broker with topics, which are added to those that it registered before."""

    access = permissions.ADMIN
    to_name_server = True
    node: BrokerNode
    version: DataVersion
    configs: tuple[TopicConfig, ...]
    replication_address: str = ""
    expiry_ms: int | None = None
    """After this time without a report, the name server forgets the broker; None: its default."""


@dataclass(frozen=True, slots=True)
class UnregisterBroker(Request[Done]):
    """104: take a broker that stops out of all routes."""

    access = permissions.ADMIN
    to_name_server = True
    node: BrokerNode


@dataclass(frozen=True, slots=True)
class ReportBroker(Request[Done]):
    """904: say that a registered broker is alive."""

    access = permissions.ADMIN
    to_name_server = True
    node: BrokerNode


@dataclass(frozen=True, slots=True)
class VersionReply(Reply):
    is_changed: bool
    version: DataVersion | None
    """The registered version; None for an unknown broker."""


@dataclass(frozen=True, slots=True)
class CompareVersion(Request[VersionReply]):
    """322: ask if the topics must be registered again; the broker counts as alive."""

    access = permissions.ADMIN
    to_name_server = True
    node: BrokerNode
    version: DataVersion
