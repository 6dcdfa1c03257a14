"""Heartbeats, progress and groups as clients of all versions send them."""

from __future__ import annotations

import json

import pytest

from rocketmq_wire.errors import (
    BrokerError,
)
from rocketmq_wire.model import (
    ConsumerInfo,
    TopicConfig,
)
from rocketmq_wire.remoting.codec import decode_reply, decode_request, encode_request
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.groups import Heartbeat
from rocketmq_wire.requests.offsets import Boundary, GetCommittedOffset, SearchOffset
from rocketmq_wire.requests.topics import CreateTopic, ListTopicConfigs, TopicConfigsReply
from support.remoting_exchanges import EXCHANGES, NAMELESS, header_of


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
    (consumer,) = EXCHANGES[5][0].consumers  # type: ignore[attr-defined]
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


def test_clients_of_4_9_may_read_absent_progress_as_zero():
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": "3"}
    assert decode_request(header_of(14, fields), b"") == GetCommittedOffset("g", NAMELESS, True)


def test_a_search_of_an_old_client_wants_the_first_message():
    fields = {"topic": "orders", "queueId": "3", "timestamp": "5"}
    assert decode_request(header_of(29, fields), b"") == SearchOffset(NAMELESS, 5)
    upper = fields | {"boundaryType": "upper"}
    assert decode_request(header_of(29, upper), b"") == SearchOffset(NAMELESS, 5, Boundary.UPPER)


def test_topic_configs_of_4_9_have_no_attributes():
    body = (
        b'{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"orders":{"order":false,'
        b'"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"orders",'
        b'"topicSysFlag":0,"writeQueueNums":8}}}'
    )
    assert decode_reply(ListTopicConfigs(), Header(0), body) == TopicConfigsReply(
        (TopicConfig("orders", 8, 8),)
    )


def test_attributes_taken_away_are_not_added():
    fields = encode_request(CreateTopic(TopicConfig("orders"))).ext_fields
    fields["attributes"] = "+message.type=FIFO,-queue.type, +a=b=c,+,x"
    request = decode_request(header_of(17, fields), b"")
    assert isinstance(request, CreateTopic)
    assert request.config.attributes == {"message.type": "FIFO", "a": "b=c"}
