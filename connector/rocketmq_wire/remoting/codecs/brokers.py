"""Requests about brokers and name servers <-> header fields, JSON bodies and `key=value` lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketmq_wire import fastjson
from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import Json, as_object, member_object, member_text, member_texts
from rocketmq_wire.model import BrokerAddresses, Buffer, ClusterInfo
from rocketmq_wire.remoting.codecs.fields import (
    Codec,
    Encoded,
    EncodedReply,
    Fields,
    done_codec,
    json_body,
    json_bytes,
    no_fields,
    success,
)
from rocketmq_wire.requests.brokers import (
    AddWritePermission,
    ChangeBrokerSettings,
    CleanConsumeQueues,
    ClusterReply,
    CountReply,
    DeleteNameServerEntry,
    GetBrokerSettings,
    GetCluster,
    GetNameServerSettings,
    GetRuntimeInfo,
    SettingsReply,
    WipeWritePermission,
)

# --- clusters --------------------------------------------------------------------------------


def _encode_cluster(_: GetCluster, reply: ClusterReply) -> EncodedReply:
    body: dict[str, Json] = {
        "brokerAddrTable": {broker.name: broker_json(broker) for broker in reply.cluster.brokers},
        "clusterAddrTable": {
            name: list(brokers) for name, brokers in reply.cluster.clusters.items()
        },
    }
    return success()._replace(body=(json_bytes(body, quotes_integer_keys=False),))


def _decode_cluster(_: GetCluster, reply: EncodedReply) -> ClusterReply:
    body = json_body(reply)
    brokers = tuple(
        broker_of(as_object(broker, "brokerAddrTable"))
        for broker in member_object(body, "brokerAddrTable").values()
    )
    clusters = member_object(body, "clusterAddrTable")
    return ClusterReply(
        ClusterInfo(brokers, {name: member_texts(clusters, name) for name in clusters})
    )


def broker_json(broker: BrokerAddresses) -> Json:
    return {
        "brokerAddrs": dict(broker.addresses),
        "brokerName": broker.name,
        "cluster": broker.cluster,
    }


def broker_of(broker: Mapping[str, Json]) -> BrokerAddresses:
    addresses = member_object(broker, "brokerAddrs")
    try:
        by_id = {int(broker_id): member_text(addresses, broker_id) for broker_id in addresses}
    except ValueError:
        raise RemoteProtocolError("brokerAddrs has a key that is no broker id") from None
    return BrokerAddresses(
        member_text(broker, "brokerName"), member_text(broker, "cluster", ""), by_id
    )


# --- settings --------------------------------------------------------------------------------


def _lines_of(settings: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in settings.items()).encode()


def _settings_of(body: Buffer) -> dict[str, str]:
    """The settings in lines `name=value`; blank lines and comments are skipped."""
    settings = {}
    for line in str(body, "utf-8", "replace").splitlines():
        name, separator, value = line.partition("=")
        if separator and name.strip() and not name.lstrip().startswith(("#", "!")):
            settings[name.strip()] = value.strip()
    return settings


def _encode_settings(_: object, reply: SettingsReply) -> EncodedReply:
    # Tools of some versions read this without asking whether it is there.
    version = fastjson.dumps({"counter": 0, "stateVersion": 0, "timestamp": 0})
    return success({"version": version})._replace(body=(_lines_of(reply.settings),))


def _decode_settings(_: object, reply: EncodedReply) -> SettingsReply:
    return SettingsReply(_settings_of(reply.body[0] if reply.body else b""))


def _encode_table(_: GetRuntimeInfo, reply: SettingsReply) -> EncodedReply:
    return success(body={"table": dict(reply.settings)})


def _decode_table(_: GetRuntimeInfo, reply: EncodedReply) -> SettingsReply:
    table = member_object(json_body(reply), "table")
    return SettingsReply({name: member_text(table, name) for name in table})


def _encode_broker(request: WipeWritePermission | AddWritePermission) -> Encoded:
    return {"brokerName": request.broker}, ()


def _encode_wiped(_: WipeWritePermission, reply: CountReply) -> EncodedReply:
    return success({"wipeTopicCount": str(reply.count)})


def _encode_added(_: AddWritePermission, reply: CountReply) -> EncodedReply:
    return success({"addTopicCount": str(reply.count)})


BROKER_CODECS: Final = (
    Codec(RequestCode.GET_BROKER_CLUSTER_INFO, GetCluster, no_fields, lambda _, __: GetCluster(),
          _encode_cluster, _decode_cluster),
    done_codec(RequestCode.UPDATE_BROKER_CONFIG, ChangeBrokerSettings,
               lambda request: ({}, (_lines_of(request.settings),)),
               lambda _, body: ChangeBrokerSettings(_settings_of(body))),
    Codec(RequestCode.GET_BROKER_CONFIG, GetBrokerSettings, no_fields,
          lambda _, __: GetBrokerSettings(), _encode_settings, _decode_settings),
    Codec(RequestCode.GET_NAMESRV_CONFIG, GetNameServerSettings, no_fields,
          lambda _, __: GetNameServerSettings(), _encode_settings, _decode_settings),
    Codec(RequestCode.GET_BROKER_RUNTIME_INFO, GetRuntimeInfo, no_fields,
          lambda _, __: GetRuntimeInfo(), _encode_table, _decode_table),
    done_codec(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, CleanConsumeQueues, no_fields,
               lambda _, __: CleanConsumeQueues()),
    Codec(RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePermission, _encode_broker,
          lambda fields, _: WipeWritePermission(fields.text("brokerName")), _encode_wiped,
          lambda _, reply: CountReply(Fields(reply.ext_fields).int32("wipeTopicCount"))),
    Codec(RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePermission, _encode_broker,
          lambda fields, _: AddWritePermission(fields.text("brokerName")), _encode_added,
          lambda _, reply: CountReply(Fields(reply.ext_fields).int32("addTopicCount"))),
    done_codec(RequestCode.DELETE_KV_CONFIG, DeleteNameServerEntry,
               lambda request: ({"namespace": request.namespace, "key": request.key}, ()),
               lambda fields, _: DeleteNameServerEntry(fields.text("namespace"),
                                                       fields.text("key"))),
)  # fmt: skip
