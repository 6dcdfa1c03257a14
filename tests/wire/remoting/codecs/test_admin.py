"""What administrators' tools say, as RocketMQ's own write and read it."""

from __future__ import annotations

import json

from rocketmq_wire.model import CommittedOffset, QueueId, Subscription
from rocketmq_wire.remoting.codec import decode_request, encode_reply
from rocketmq_wire.requests.brokers import ChangeBrokerSettings, SettingsReply
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import ConsumersReply, GetConsumers, Heartbeat
from rocketmq_wire.requests.offsets import (
    AllCommittedOffsetsReply,
    ConsumeStatsReply,
    GetAllCommittedOffsets,
    OffsetsReply,
    ResetClientOffsets,
)
from support.remoting_exchanges import header_of

QUEUE = QueueId("orders", "broker-a", 1)
QUEUE_KEY = '{"brokerName":"broker-a","queueId":1,"topic":"orders"}'


def body_of(request: Request[Reply], reply: Reply) -> str:
    (body,) = encode_reply(request, reply).body
    return bytes(body).decode()


def test_settings_are_lines_of_names_and_values() -> None:
    body = b"#comment\n! another\n\n a = 1 \nb=x=y\nnot a setting\n=c\n"
    assert decode_request(header_of(25, {}), body) == ChangeBrokerSettings({"a": "1", "b": "x=y"})
    request = decode_request(header_of(26, {}), b"")
    assert body_of(request, SettingsReply({"a": "1", "b": ""})) == "a=1\nb=\n"


def test_offsets_of_a_reset_are_keyed_by_queues() -> None:
    request = ResetClientOffsets("g", "orders", -1)
    assert body_of(request, OffsetsReply({QUEUE: 7})) == f'{{"offsetTable":{{{QUEUE_KEY}:7}}}}'


def test_a_reset_of_4_9_names_neither_queue_nor_offset() -> None:
    fields = {"group": "g", "topic": "orders", "timestamp": "5", "isForce": "true"}
    assert decode_request(header_of(222, fields), b"") == ResetClientOffsets("g", "orders", 5)


def test_progress_of_a_broker_is_a_list_a_group_with_totals() -> None:
    stats = ConsumeStatsReply({QUEUE: CommittedOffset(9, 4, 77, 6)})
    text = body_of(GetAllCommittedOffsets(), AllCommittedOffsetsReply({"g": (stats, stats)}, "a:1"))
    assert '"totalDiff":10' in text
    assert '"totalInflightDiff":4' in text
    assert f'"consumeStatsList":[{{"g":[{{"consumeTps":0.0,"offsetTable":{{{QUEUE_KEY}:' in text


def test_subscriptions_of_consumers_are_told_as_heartbeats_tell_them() -> None:
    reply = ConsumersReply(
        (), "CONSUME_PASSIVELY", "CLUSTERING", "X", {"t": (Subscription("A"), 5)}
    )
    table = json.loads(body_of(GetConsumers("g"), reply))["subscriptionTable"]
    assert table["t"] == {
        "classFilterMode": False,
        "codeSet": [65],
        "expressionType": "TAG",
        "subString": "A",
        "subVersion": 5,
        "tagsSet": ["A"],
        "topic": "t",
    }


def test_a_heartbeat_says_of_which_language_and_version_the_client_is() -> None:
    header = header_of(34, {}, version=479)
    heartbeat = decode_request(header, b'{"clientID":"c"}')
    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.version, heartbeat.language) == (479, header.language)
