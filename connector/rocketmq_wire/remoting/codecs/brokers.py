"""Requests about brokers and name servers <-> header fields, JSON bodies and `key=value` lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketmq_wire import fastjson
from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import as_object, member_object, member_text, member_texts
from rocketmq_wire.model import BrokerAddresses, Buffer, ClusterInfo
from rocketmq_wire.numbers import whole_number
from rocketmq_wire.remoting.codecs import body, header
from rocketmq_wire.remoting.codecs.layouts import DONE, Codec, Content, answer, constant, layout
from rocketmq_wire.requests import brokers
from rocketmq_wire.requests.contract import CountReply

# --- clusters --------------------------------------------------------------------------------


def _addresses_of(broker: body.JsonObject, name: str) -> dict[int, str]:
    addresses = member_object(broker, name)
    found: dict[int, str] = {}
    for key in addresses:
        broker_id = whole_number(key, is_signed=True)
        if broker_id is None:
            raise RemoteProtocolError(f"{name} has a key that is no broker id: {key[:40]!r}")
        found[broker_id] = member_text(addresses, key)
    return found


BROKER: Final = body.Object(
    BrokerAddresses,
    body.member("brokerAddrs", "addresses", _addresses_of, dict),
    body.text("brokerName", "name"),
    body.text("cluster", default=""),
)


def _brokers_of(cluster: body.JsonObject, name: str) -> tuple[BrokerAddresses, ...]:
    found = member_object(cluster, name)
    return tuple([BROKER.read(as_object(broker, name)) for broker in found.values()])


def _clusters_of(cluster: body.JsonObject, name: str) -> dict[str, tuple[str, ...]]:
    clusters = member_object(cluster, name)
    return {name: member_texts(clusters, name) for name in clusters}


_CLUSTER: Final = body.Object(
    ClusterInfo,
    body.member("brokerAddrTable", "brokers", _brokers_of,
                lambda found: {broker.name: BROKER.write(broker) for broker in found}),
    body.member("clusterAddrTable", "clusters", _clusters_of, dict),
)  # fmt: skip


# --- settings --------------------------------------------------------------------------------


def _lines_of(settings: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in settings.items()).encode()


def _settings_of(content: Buffer) -> dict[str, str]:
    """The settings in lines `name=value`; blank lines and comments are skipped."""
    settings = {}
    for line in str(content, "utf-8", "replace").splitlines():
        name, separator, value = line.partition("=")
        if separator and name.strip() and not name.lstrip().startswith(("#", "!")):
            settings[name.strip()] = value.strip()
    return settings


_LINES: Final = Content(
    lambda record: (_lines_of(record.settings),),
    lambda content: {"settings": _settings_of(content)},
)
_SETTINGS: Final = answer(
    brokers.SettingsReply,
    # Tools of some versions read this without asking whether it is there.
    constant("version", fastjson.dumps(body.NO_VERSION)),
    body=_LINES,
)

_STATISTIC: Final = body.Object(
    brokers.Statistic,
    body.integer("sum", "total"),
    body.number("tps", "per_second"),
    body.number("avgpt", "average"),
)


def _statistic(name: str, attribute: str) -> body.Member:
    return body.member(
        name,
        attribute,
        lambda owner, name: _STATISTIC.read(member_object(owner, name)),
        _STATISTIC.write,
    )


CODECS: Final = (
    Codec(RequestCode.GET_BROKER_CLUSTER_INFO, layout(brokers.GetCluster),
          answer(brokers.ClusterReply, body=body.whole("cluster", _CLUSTER.read, _CLUSTER.write,
                                                       quotes_integer_keys=False))),
    Codec(RequestCode.UPDATE_BROKER_CONFIG, layout(brokers.ChangeBrokerSettings, body=_LINES),
          DONE),
    Codec(RequestCode.GET_BROKER_CONFIG, layout(brokers.GetBrokerSettings), _SETTINGS),
    Codec(RequestCode.GET_NAMESRV_CONFIG, layout(brokers.GetNameServerSettings), _SETTINGS),
    Codec(RequestCode.GET_BROKER_RUNTIME_INFO, layout(brokers.GetRuntimeInfo),
          answer(brokers.SettingsReply,
                 body=body.members(body.texts_by_name("table", "settings")))),
    Codec(RequestCode.VIEW_BROKER_STATS_DATA,
          layout(brokers.GetStatistic, header.text("statsName", "name"),
                 header.text("statsKey", "key")),
          answer(brokers.StatisticReply,
                 body=body.members(_statistic("statsMinute", "minute"),
                                   _statistic("statsHour", "hour"),
                                   _statistic("statsDay", "day")))),
    Codec(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, layout(brokers.CleanConsumeQueues), DONE),
    Codec(RequestCode.WIPE_WRITE_PERM_OF_BROKER,
          layout(brokers.WipeWritePermission, header.text("brokerName", "broker")),
          answer(CountReply, header.int32("wipeTopicCount", "count"))),
    Codec(RequestCode.ADD_WRITE_PERM_OF_BROKER,
          layout(brokers.AddWritePermission, header.text("brokerName", "broker")),
          answer(CountReply, header.int32("addTopicCount", "count"))),
    Codec(RequestCode.DELETE_KV_CONFIG,
          layout(brokers.DeleteNameServerEntry, header.text("namespace"), header.text("key")),
          DONE),
)  # fmt: skip
