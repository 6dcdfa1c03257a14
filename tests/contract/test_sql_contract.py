"""SQL92 filters over both transports: exact at the broker, and refused clearly where it is off."""

from __future__ import annotations

import time

import pytest

from rocketmq_broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import FilterUnsupportedError
from rocketmq_wire.model import Message, OffsetRange, QueueId, Subscription, TopicConfig
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.messages import SendReply

QUEUE = QueueId("orders", "broker-a", 0)
COUNT = 2_500
OUTAGE_S = 60


def settings_of(broker, transport):
    if transport == "tcp":
        return ConnectionSettings((broker.name_server,), request_timeout_ms=30_000)
    return ConnectionSettings(endpoints=broker.endpoints, request_timeout_ms=30_000)


@pytest.fixture(params=["tcp", "grpc"])
def transport(request):
    return request.param


def started(*, allows_sql):
    return Broker(config_from({"flush": "memory", "property_filter": allows_sql}))


def offsets_read(cluster, expression):
    spec = ReadSpec("readers", Subscription(expression, "SQL92"))
    found = []
    for chunk in cluster.read_ranges([OffsetRange(QUEUE, 0, COUNT)], spec):
        at = 0
        while at < len(chunk.body):
            message, at = decode_record(chunk.body, at)
            found.append(message.queue_offset)
    return found


def test_expressions_select_at_the_broker_and_cover_the_range(transport):
    with (
        started(allows_sql=True) as broker,
        open_cluster(settings_of(broker, transport)) as cluster,
    ):
        cluster.create_topic(TopicConfig("orders", 1, 1))
        messages = [Message("orders", b"x", properties={"n": str(n)}) for n in range(COUNT)]
        with Producer(cluster) as producer:
            request = producer.batch_request(QUEUE, messages)
            (sent,) = producer.send_many([request])
            assert isinstance(sent.result, SendReply)
            assert sent.result.count == COUNT
        assert offsets_read(cluster, "n BETWEEN 1200 AND 1202 OR n = 2") == [2, 1200, 1201, 1202]
        assert offsets_read(cluster, "missing = 1") == []
        assert offsets_read(cluster, "n >= 0") == list(range(COUNT))


def test_a_broker_that_does_not_filter_by_properties_says_so(transport):
    sql = Subscription("n = 1", "SQL92")
    refused = r"^\[ROCKETMQ_UNSUPPORTED\.SQL92\] .*enablePropertyFilter=true .*property_filter"
    with (
        started(allows_sql=False) as broker,
        open_cluster(settings_of(broker, transport)) as cluster,
    ):
        cluster.create_topic(TopicConfig("orders", 1, 1))
        with pytest.raises(FilterUnsupportedError, match=refused):
            cluster.pull(QUEUE, 0, 1, subscription=sql)
        with Producer(cluster) as producer:
            producer.send(Message("orders", b"x", properties={"n": "1"}), QUEUE)
        # At once, not when an outage would be over: no time makes the broker filter.
        began = time.monotonic()
        with pytest.raises(FilterUnsupportedError, match=refused):
            offsets_read(cluster, "n = 1")
        assert time.monotonic() - began < OUTAGE_S / 2
