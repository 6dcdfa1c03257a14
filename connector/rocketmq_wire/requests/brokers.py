"""Requests about brokers and name servers: clusters, settings, write permission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocketmq_wire.model import ClusterInfo
from rocketmq_wire.requests import permissions
from rocketmq_wire.requests.contract import CountReply, Done, Reply, Request


@dataclass(frozen=True, slots=True)
class ClusterReply(Reply):
    cluster: ClusterInfo


@dataclass(frozen=True, slots=True)
class GetCluster(Request[ClusterReply]):
    """106: the brokers that a name server knows."""

    access = permissions.NOTHING
    to_name_server = True


@dataclass(frozen=True, slots=True)
class SettingsReply(Reply):
    """Names and values as in RocketMQ's configuration files."""

    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GetBrokerSettings(Request[SettingsReply]):
    """26: read a broker's settings."""

    access = permissions.NOTHING


@dataclass(frozen=True, slots=True)
class GetNameServerSettings(Request[SettingsReply]):
    """319: read a name server's settings."""

    access = permissions.NOTHING
    to_name_server = True


@dataclass(frozen=True, slots=True)
class ChangeBrokerSettings(Request[Done]):
    """25: change settings of a running broker, which ignores names that it does not know."""

    access = permissions.ADMIN
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GetRuntimeInfo(Request[SettingsReply]):
    """28: ask a broker for its counters and measurements."""

    access = permissions.NOTHING


@dataclass(frozen=True, slots=True)
class Statistic:
    """What was counted over one period."""

    total: int
    per_second: float
    average: float
    """Per request."""


@dataclass(frozen=True, slots=True)
class StatisticReply(Reply):
    """A statistic of the last minute, hour and day."""

    minute: Statistic
    hour: Statistic
    day: Statistic


@dataclass(frozen=True, slots=True)
class GetStatistic(Request[StatisticReply]):
    """315: ask a broker for one of its statistics. Raises BrokerError (1) if it has none."""

    access = permissions.GET_CLUSTER
    name: str
    """`TOPIC_PUT_NUMS`, `TOPIC_PUT_SIZE`, `GROUP_GET_NUMS` or `GROUP_GET_SIZE`."""
    key: str
    """The topic, or `topic@group`."""


@dataclass(frozen=True, slots=True)
class CleanConsumeQueues(Request[Done]):
    """306: delete consume-queue files whose log has expired."""

    access = permissions.ADMIN


@dataclass(frozen=True, slots=True)
class WipeWritePermission(Request[CountReply]):
    """205: close a broker for writes in every route; the reply counts its topics."""

    access = permissions.ADMIN
    to_name_server = True
    broker: str


@dataclass(frozen=True, slots=True)
class AddWritePermission(Request[CountReply]):
    """327: undo `WipeWritePermission`."""

    access = permissions.ADMIN
    to_name_server = True
    broker: str


@dataclass(frozen=True, slots=True)
class DeleteNameServerEntry(Request[Done]):
    """102: delete an entry of a name server's own table; tools delete a topic's order."""

    access = permissions.ADMIN
    to_name_server = True
    namespace: str
    key: str
