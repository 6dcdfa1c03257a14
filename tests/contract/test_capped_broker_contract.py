"""Downloads from a broker that answers as a real one does: 32 messages or 256 KiB a pull, stopping
where a consume-queue file ends."""

from __future__ import annotations

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.download.contract import ReadLimits, ReadSpec
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Message, OffsetRange, QueueId, Subscription, TopicConfig
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.messages import SendReply

COUNT = 4_000
ORDERS = [QueueId("orders", "broker-a", index) for index in range(2)]


@pytest.fixture(scope="module")
def broker():
    config = {
        "flush": "memory",
        "commit_needs_group": False,
        "transfer_count_max": 32,
        "transfer_bytes_max": 256 * 1024,
        "consume_queue_file_entries": 500,
        "pull_stops_at_queue_file_end": True,
    }
    with Broker(config_from(config)) as broker:
        settings = ConnectionSettings((broker.name_server,), request_timeout_ms=30_000)
        with open_cluster(settings) as cluster, Producer(cluster) as producer:
            cluster.create_topic(TopicConfig("orders", 2, 2))
            requests = [
                producer.batch_request(queue, [message_of(n) for n in range(start, start + 200)])
                for start in range(0, COUNT, 200)
                for queue in ORDERS
            ]
            for sent in producer.send_many(requests):
                assert isinstance(sent.result, SendReply)
        yield broker


def message_of(number):
    # Every 97th body is so large that bytes, not messages, end the pull.
    size = 60_000 if number % 97 == 0 else 40
    tags = "rare" if number % 400 == 0 else "common"
    return Message("orders", (b"%d" % number).ljust(size, b"."), tags=tags)


@pytest.fixture(params=["tcp", "grpc"])
def cluster(request, broker):
    where = (
        {"name_servers": (broker.name_server,)}
        if request.param == "tcp"
        else {"endpoints": broker.endpoints}
    )
    with open_cluster(ConnectionSettings(**where, request_timeout_ms=30_000)) as cluster:
        yield cluster


def offsets_of(cluster, ranges, spec):
    found: dict[QueueId, list[int]] = {wanted.queue: [] for wanted in ranges}
    for chunk in cluster.read_ranges(ranges, spec):
        position, inside = 0, []
        while position < len(chunk.body):
            message, position = decode_record(chunk.body, position)
            if chunk.start <= message.queue_offset < chunk.end:
                assert message.body.rstrip(b".") == b"%d" % message.queue_offset
                inside.append(message.queue_offset)
        if chunk.expected_count is not None:
            assert len(inside) == chunk.expected_count
        found[chunk.queue] += inside
    return found


@pytest.mark.parametrize(
    "limits", [ReadLimits(), ReadLimits(messages_max=100), ReadLimits(pulls_in_flight=1)]
)
def test_every_offset_arrives_once_and_in_order(cluster, limits):
    ranges = [OffsetRange(queue, 3, COUNT - 5) for queue in ORDERS]
    found = offsets_of(cluster, ranges, ReadSpec("readers", limits=limits))
    assert found == {queue: list(range(3, COUNT - 5)) for queue in ORDERS}


def test_a_filter_goes_over_long_stretches_without_a_match(cluster):
    ranges = [OffsetRange(queue, 0, COUNT) for queue in ORDERS]
    found = offsets_of(cluster, ranges, ReadSpec("readers", Subscription("rare")))
    assert found == {queue: list(range(0, COUNT, 400)) for queue in ORDERS}
