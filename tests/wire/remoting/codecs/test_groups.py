"""Heartbeats, members and queue locks as clients of all versions send them."""

from __future__ import annotations

import json

import pytest

from rocketmq_wire.errors import (
    BrokerError,
)
from rocketmq_wire.model import (
    ConsumerInfo,
    QueueId,
    Subscription,
)
from rocketmq_wire.remoting.codec import decode_request, encode_reply, encode_request
from rocketmq_wire.requests.groups import (
    ConsumersReply,
    GetConsumers,
    Heartbeat,
    LockQueues,
    QueuesReply,
)
from support.remoting_exchanges import EXCHANGES, body_of, header_of


def test_a_java_heartbeat_is_read():
    body = (
        b'{"clientID":"10.0.0.9@4711#99","consumerDataSet":[{"consumeFromWhere":'
        b'"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"g",'
        b'"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,'
        b'"codeSet":[2598919],"expressionType":"TAG","subString":"TagA","subVersion":1700000000000,'
        b'"tagsSet":["TagA"],"topic":"orders"},{"classFilterMode":false,"codeSet":[],'
        b'"subString":"*","subVersion":1,"tagsSet":[],"topic":"%RETRY%g"}],"unitMode":false}],'
        b'"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],'
        b'"withoutSub":false}'
    )
    assert decode_request(header_of(34, {}), body) == Heartbeat(
        "10.0.0.9@4711#99",
        ("CLIENT_INNER_PRODUCER",),
        (
            ConsumerInfo(
                "g",
                "CONSUME_PASSIVELY",
                "CLUSTERING",
                "CONSUME_FROM_LAST_OFFSET",
                (
                    ("orders", "TagA", "TAG", 1_700_000_000_000),
                    ("%RETRY%g", "*", "TAG", 1),
                ),
            ),
        ),
    )


def test_a_heartbeat_of_the_client_in_cpp_is_read():
    body = (
        b'{"clientID":"1-127.0.0.1@DEFAULT","consumerDataSet":[{"consumeFromWhere":4,'
        b'"consumeType":1,"groupName":"g","messageModel":0,"subscriptionDataSet":'
        b'[{"subString":"*","subVersion":"1795023607899","topic":"orders"}]}]}\n'
    )
    info = ConsumerInfo(
        "g",
        "CONSUME_PASSIVELY",
        "BROADCASTING",
        "CONSUME_FROM_FIRST_OFFSET",
        (("orders", "*", "TAG", 1_795_023_607_899),),
    )
    assert decode_request(header_of(34, {}), body) == Heartbeat("1-127.0.0.1@DEFAULT", (), (info,))


def test_a_heartbeat_holds_tags_and_their_hashes():
    (heartbeat,) = (asked for asked, _, _ in EXCHANGES if isinstance(asked, Heartbeat))
    (consumer,) = heartbeat.consumers
    (body,) = encode_request(Heartbeat("c", (), (consumer,))).body
    tagged, sql = json.loads(bytes(body))["consumerDataSet"][0]["subscriptionDataSet"]
    assert tagged["tagsSet"] == ["TagA", "TagB"]
    assert tagged["codeSet"] == [2598919, 2598920]
    assert (sql["tagsSet"], sql["codeSet"], sql["expressionType"]) == ([], [], "SQL92")


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"x", b'{"clientID":7}', b"\xff\xfe"])
def test_a_heartbeat_that_is_none_is_refused(body: bytes):
    with pytest.raises(BrokerError) as caught:
        decode_request(header_of(34, {}), body)
    assert caught.value.code == 1


def test_subscriptions_of_consumers_are_written_as_in_heartbeats() -> None:
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


def test_a_heartbeat_carries_the_clients_language_and_version() -> None:
    header = header_of(34, {}, version=479)
    heartbeat = decode_request(header, b'{"clientID":"c"}')
    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.version, heartbeat.language) == (479, header.language)


def test_a_java_lock_is_read_and_answered() -> None:
    body = (
        b'{"clientId":"10.0.0.9@4711","consumerGroup":"g","mqSet":[{"brokerName":"broker-a",'
        b'"queueId":1,"topic":"orders"},{"brokerName":"broker-a","queueId":0,"topic":"orders"}],'
        b'"onlyThisBroker":false}'
    )
    first, second = QueueId("orders", "broker-a", 0), QueueId("orders", "broker-a", 1)
    request = decode_request(header_of(41, {}), body)
    assert request == LockQueues("g", "10.0.0.9@4711", (first, second))
    (answer,) = encode_reply(request, QueuesReply((second,))).body
    assert json.loads(bytes(answer)) == {
        "lockOKMQSet": [{"brokerName": "broker-a", "queueId": 1, "topic": "orders"}]
    }
