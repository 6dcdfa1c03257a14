"""Routes, clusters and topics: JSON of all versions, written as the asker reads it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import (
    RemoteProtocolError,
)
from rocketmq_wire.model import (
    QueueId,
    QueueStats,
    TopicConfig,
)
from rocketmq_wire.remoting.codec import decode_reply, decode_request, encode_reply, encode_request
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.topics import (
    CreateTopic,
    GetRoute,
    GetTopicStats,
    ListTopicConfigs,
    RouteReply,
    TopicConfigsReply,
    TopicStatsReply,
)
from support.remoting_exchanges import INT64, QUEUE, QUEUES, ROUTE, ask, header_of

ROUTE_OF_4_9_3 = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
    b'"brokerName":"broker-a","cluster":"DefaultCluster"}],"filterServerTable":{},'
    b'"orderTopicConf":"broker-a:4","queueDatas":[{"brokerName":"broker-a","perm":6,'
    b'"readQueueNums":8,"topicSysFlag":2,"writeQueueNums":4}]}'
)
ROUTE_OF_5 = (
    ROUTE_OF_4_9_3.replace(b"{0:", b'{"0":')
    .replace(b",1:", b',"1":')
    .replace(b'"cluster":', b'"enableActingMaster":false,"zoneName":"z","cluster":')
)


@pytest.mark.parametrize(
    "body", [ROUTE_OF_4_9_3, ROUTE_OF_5, ROUTE_OF_4_9_3.replace(b"topicSysFlag", b"topicSynFlag")]
)
def test_routes_of_all_versions_are_read(body: bytes):
    assert decode_reply(GetRoute("orders"), Header(0), body) == RouteReply(ROUTE)


@pytest.mark.parametrize(
    ("version", "fields", "is_strict"),
    [
        (400, {}, False),
        (399, {"acceptStandardJsonOnly": "false"}, False),
        (399, {"acceptStandardJsonOnly": "true"}, True),
        (0, {"acceptStandardJsonOnly": "TRUE"}, True),
        (401, {}, True),
        (479, {"acceptStandardJsonOnly": "false"}, True),
    ],
)
def test_a_route_is_written_as_the_client_reads_it(
    version: int, fields: dict[str, str], is_strict: bool
):
    header = header_of(105, {"topic": "orders", **fields}, version=version)
    request = decode_request(header, b"")
    (body,) = encode_reply(request, RouteReply(ROUTE)).body
    if is_strict:
        assert json.loads(bytes(body))["brokerDatas"][0]["brokerAddrs"]["0"] == "10.0.0.1:10911"
    else:
        assert body == ROUTE_OF_4_9_3


def test_the_route_of_a_static_topic_is_refused():
    body = ROUTE_OF_5[:-1] + b',"topicQueueMappingByBroker":{"broker-a":{"topic":"orders"}}}'
    with pytest.raises(RemoteProtocolError, match="orders is a static one"):
        decode_reply(GetRoute("orders"), Header(0), body)
    empty = ROUTE_OF_5[:-1] + b',"topicQueueMappingByBroker":{}}'
    assert decode_reply(GetRoute("orders"), Header(0), empty) == RouteReply(ROUTE)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"queueDatas":{}}',
        b'{"queueDatas":[7]}',
        b'{"queueDatas":[{"brokerName":"a","perm":"6","readQueueNums":8,"writeQueueNums":8}]}',
        b'{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8.5,"writeQueueNums":8}]}',
        b'{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"x":"h:1"}}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"0":7}}]}',
        b'{"brokerDatas":[{"brokerAddrs":{}}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"%b":"h:1"}}]}' % (b"5" * 5_000),
        # Two thousand million queues: a list of them would take all memory.
        (
            b'{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":2000000000,'
            b'"writeQueueNums":8}]}'
        ),
        (
            b'{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8,"writeQueueNums":200000},'
            b'{"brokerName":"b","perm":6,"readQueueNums":8,"writeQueueNums":200000}]}'
        ),
    ],
)
def test_a_route_that_is_no_route_is_refused(body: bytes):
    with pytest.raises(RemoteProtocolError):
        decode_reply(GetRoute("orders"), Header(0), body)


TOPIC_STATS = (
    b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"orders"}:'
    b'{"lastUpdateTimestamp":77,"maxOffset":9,"minOffset":1}},"topicPutTps":0.0}'
)


def test_statistics_have_object_keys():
    stats = TopicStatsReply({QUEUE: QueueStats(1, 9, 77)})
    assert encode_reply(GetTopicStats("orders"), stats).body == (TOPIC_STATS,)
    assert decode_reply(GetTopicStats("orders"), Header(0), TOPIC_STATS) == stats


def test_statistics_with_keys_in_any_order_or_quoted_are_read():
    key = b'{"brokerName":"broker-a","queueId":3,"topic":"orders"}'
    expected = TopicStatsReply({QUEUE: QueueStats(1, 9, 77)})
    for other in (
        b'{"topic":"orders", "queueId":3, "brokerName":"broker-a"}',
        json.dumps(key.decode()).encode(),
    ):
        body = TOPIC_STATS.replace(key, other)
        assert decode_reply(GetTopicStats("orders"), Header(0), body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b'{"offsetTable":{"x":{}}}',
        b'{"offsetTable":{"7":{}}}',
        b'{"offsetTable":{{"topic":"t"}:{}}}',
        TOPIC_STATS.replace(b'"maxOffset":9', b'"maxOffset":"9"'),
        TOPIC_STATS.replace(b'"maxOffset":9', b'"maxOffset":9223372036854775808'),
    ],
)
def test_statistics_that_are_none_are_refused(body: bytes):
    with pytest.raises(RemoteProtocolError, match="GET_TOPIC_STATS_INFO"):
        decode_reply(GetTopicStats("orders"), Header(0), body)


@given(st.dictionaries(QUEUES, st.builds(QueueStats, INT64, INT64, INT64), max_size=5))
def test_any_statistics_survive_the_wire(table: dict[QueueId, QueueStats]):
    assert ask(GetTopicStats("t"), TopicStatsReply(table)) == TopicStatsReply(table)


def test_topic_configs_of_4_9_have_no_attributes():
    body = (
        b'{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"orders":{"order":false,'
        b'"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"orders",'
        b'"topicSysFlag":0,"writeQueueNums":8}}}'
    )
    assert decode_reply(ListTopicConfigs(), Header(0), body) == TopicConfigsReply(
        (TopicConfig("orders", 8, 8),)
    )


def test_removed_attributes_are_not_added():
    fields = encode_request(CreateTopic(TopicConfig("orders"))).ext_fields
    fields["attributes"] = "+message.type=FIFO,-queue.type, +a=b=c,+,x"
    request = decode_request(header_of(17, fields), b"")
    assert isinstance(request, CreateTopic)
    assert request.config.attributes == {"message.type": "FIFO", "a": "b=c"}
