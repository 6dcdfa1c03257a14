"""Requests of brokers to name servers <-> header fields and JSON bodies.

A registration carries a checksum of its body; 0 stands for none.
"""

from __future__ import annotations

import zlib
from typing import Final

from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import Json, json_object, member_object
from rocketmq_wire.limits import REGISTRATION_TOPICS_MAX
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.codecs import body, header
from rocketmq_wire.remoting.codecs.layouts import (
    DONE,
    Codec,
    Content,
    Encoded,
    Field,
    Fields,
    Layout,
    answer,
    layout,
)
from rocketmq_wire.remoting.codecs.topics import CONFIG_TABLE, configs_from_json, configs_json
from rocketmq_wire.requests.registration import (
    BrokerNode,
    CompareVersion,
    DataVersion,
    RegisterBroker,
    RegisterReply,
    ReportBroker,
    UnregisterBroker,
    VersionReply,
)

_CHECKSUM_MASK: Final = 0x7FFF_FFFF


def _node_of(fields: Fields) -> BrokerNode:
    # Only a heartbeat may leave the id out.
    return BrokerNode(
        fields.text("clusterName"),
        fields.text("brokerName"),
        fields.int64("brokerId", 0),
        fields.text("brokerAddr"),
    )


def _write_node(target: dict[str, str], record: object) -> None:
    node: BrokerNode = record.node  # type: ignore[attr-defined]
    target["clusterName"] = node.cluster
    target["brokerName"] = node.name
    target["brokerId"] = str(node.id)
    target["brokerAddr"] = node.address


_NODE: Final = Field("node", _node_of, _write_node)
_VERSION: Final = body.Object(
    DataVersion,
    body.integer("counter", default=0),
    body.integer("timestamp", "timestamp_ms", 0),
    body.integer("stateVersion", "state", 0),
)
_WRAPPER: Final = "topicConfigSerializeWrapper"


# --- registrations ---------------------------------------------------------------------------


def _encode_registration(request: RegisterBroker) -> Encoded:
    version, topics = _VERSION.write(request.version), configs_json(request.configs)
    wrapper: Json = {"dataVersion": version, CONFIG_TABLE: topics}
    content = body.json_bytes({"filterServerList": [], _WRAPPER: wrapper})
    ext_fields = {"haServerAddr": request.replication_address}
    _write_node(ext_fields, request)
    if request.expiry_ms is not None:
        ext_fields["heartbeatTimeoutMillis"] = str(request.expiry_ms)
    ext_fields["bodyCrc32"] = str(zlib.crc32(content) & _CHECKSUM_MASK)
    return ext_fields, (content,)


def _decode_registration(fields: Fields, content: Buffer) -> RegisterBroker:
    checksum = fields.int32("bodyCrc32", 0)
    if checksum and checksum != zlib.crc32(content) & _CHECKSUM_MASK:
        raise RemoteProtocolError("crc32 not match")
    if fields.boolean("compressed", False):
        raise RemoteProtocolError("compressedRegister=true is not supported")
    wrapper = member_object(json_object(content), _WRAPPER)
    if member_object(wrapper, "topicQueueMappingInfoMap"):
        # Without their mapping, clients would read other offsets than they mean.
        raise RemoteProtocolError("the broker has static topics, which are not supported")
    count = len(member_object(wrapper, CONFIG_TABLE))
    if count > REGISTRATION_TOPICS_MAX:
        raise RemoteProtocolError(
            f"{count} topics in one registration, over {REGISTRATION_TOPICS_MAX}: "
            "set enableSplitRegistration=true and a smaller splitRegistrationSize"
        )
    has_expiry = fields.has("heartbeatTimeoutMillis")
    return RegisterBroker(
        _node_of(fields),
        _VERSION.read(member_object(wrapper, "dataVersion")),
        configs_from_json(wrapper),
        fields.text("haServerAddr", ""),
        fields.int64("heartbeatTimeoutMillis") if has_expiry else None,
    )


_VERSION_BODY: Final = Content(
    lambda record: (body.json_bytes(_VERSION.write(record.version)),) if record.version else (),
    lambda content: {"version": _VERSION.read(json_object(content)) if len(content) else None},
)

CODECS: Final = (
    Codec(RequestCode.REGISTER_BROKER,
          Layout(RegisterBroker, _encode_registration, _decode_registration),
          answer(RegisterReply, header.optional("haServerAddr", "replication_address"),
                 header.optional("masterAddr", "master_address"))),
    Codec(RequestCode.UNREGISTER_BROKER, layout(UnregisterBroker, _NODE), DONE),
    Codec(RequestCode.BROKER_HEARTBEAT, layout(ReportBroker, _NODE), DONE),
    Codec(RequestCode.QUERY_DATA_VERSION, layout(CompareVersion, _NODE, body=_VERSION_BODY),
          answer(VersionReply, header.boolean("changed", "is_changed"), body=_VERSION_BODY)),
)  # fmt: skip
