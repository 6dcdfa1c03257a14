"""Registrations as RocketMQ's brokers send them."""

from __future__ import annotations

import json
import zlib

import pytest

from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.remoting.codec import decode_request, encode_reply, encode_request
from rocketmq_wire.requests.registration import (
    BrokerNode,
    CompareVersion,
    DataVersion,
    RegisterBroker,
    ReportBroker,
    VersionReply,
)
from support.remoting_exchanges import CONFIG, NODE, VERSION, body_of, header_of

NAMES = {"brokerName": "broker-b", "brokerAddr": "10.0.0.2:10911", "clusterName": "DefaultCluster"}
# As 5.3.3 writes it: members that this project does not read, topics with their names.
TOPIC = {
    "attributes": {},
    "order": False,
    "perm": 6,
    "readQueueNums": 8,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "orders",
    "topicSysFlag": 0,
    "writeQueueNums": 4,
}


def content(**members: object) -> bytes:
    wrapper = {
        "dataVersion": {"counter": 7, "stateVersion": 1, "timestamp": 1_700_000_000_000},
        "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 5},
        "topicConfigTable": {"orders": TOPIC},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
        **members,
    }
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def test_a_registration_of_rocketmq_is_read() -> None:
    body = content()
    crc32 = str(zlib.crc32(body) & 0x7FFFFFFF)
    fields = {**NAMES, "brokerId": "0", "haServerAddr": "10.0.0.2:10912", "compressed": "false"}
    header = header_of(103, {**fields, "enableActingMaster": "false", "bodyCrc32": crc32})
    assert decode_request(header, body) == RegisterBroker(
        NODE, VERSION, (TopicConfig("orders", 8, 4),), "10.0.0.2:10912"
    )


def test_a_registration_has_what_rocketmq_requires() -> None:
    code, fields, parts = encode_request(RegisterBroker(NODE, VERSION, (CONFIG,)))
    body = b"".join(map(bytes, parts))
    assert code == 103
    assert fields == {
        **NAMES,
        "brokerId": "0",
        "haServerAddr": "",
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
    }
    wrapper = json.loads(body)["topicConfigSerializeWrapper"]
    assert wrapper["dataVersion"]["counter"] == 7
    assert wrapper["topicConfigTable"]["orders"]["readQueueNums"] == 8


@pytest.mark.parametrize(
    ("fields", "body", "remark"),
    [
        ({"bodyCrc32": "1"}, content(), "crc32 not match"),
        ({"compressed": "true"}, content(), "compressedRegister=true is not supported"),
        ({}, content(topicQueueMappingInfoMap={"t": {"topic": "t"}}), "static topics"),
        ({}, b"[]", "JSON"),
        ({}, content(topicConfigTable={str(n): {} for n in range(2_001)}), "2001 topics in one"),
        ({"brokerId": "x"}, content(), "brokerId is no number"),
    ],
)
def test_what_cannot_be_served_is_refused(fields: dict[str, str], body: bytes, remark: str) -> None:
    with pytest.raises(BrokerError, match=remark) as caught:
        decode_request(header_of(103, {**NAMES, "brokerId": "0", **fields}), body)
    assert caught.value.code == 1


def test_a_heartbeat_may_leave_the_id_out() -> None:
    assert decode_request(header_of(904, NAMES), b"") == ReportBroker(NODE)


def test_an_unknown_broker_has_no_version() -> None:
    compared = CompareVersion(BrokerNode("c", "b", 0, "h:1"), DataVersion())
    assert encode_reply(compared, VersionReply(True, None)).body == ()
    assert json.loads(body_of(compared, VersionReply(False, VERSION)))["timestamp"] == (
        VERSION.timestamp_ms
    )
