"""Where the driver found brokers travels with the tasks: a new worker needs no name server."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from pyspark_rocketmq.planning.batch import BatchTask, QueueSlice
from pyspark_rocketmq.read.task import TaskPartition, range_partitions
from rocketmq_broker import Broker, BrokerConfig
from rocketmq_client.cluster import open_cluster
from rocketmq_client.download.contract import ReadLimits, ReadSpec
from rocketmq_client.producer.producer import Producer
from rocketmq_client.routing import BrokerDirectory
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import ConnectError
from rocketmq_wire.model import BrokerAddresses, Message, OffsetRange, QueueId, TopicConfig

QUEUE = QueueId("orders", "broker-a", 0)
ELSEWHERE = QueueId("orders", "broker-b", 0)
ADDRESSES = {
    "broker-a": "10.0.0.1:10911",
    "broker-b": "10.0.0.2:10911",
    "broker-c": "10.0.0.3:10911",
}
NO_SERVER = ConnectionSettings(name_servers=("127.0.0.1:1",), request_timeout_ms=1_000)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(BrokerConfig(flush="memory", grpc=False)) as broker:
        yield broker


def test_a_partition_carries_the_addresses_of_its_own_brokers() -> None:
    ranges = OffsetRange(QUEUE, 0, 9), OffsetRange(ELSEWHERE, 0, 9)
    both, one = range_partitions([ranges, ranges[:1]], ADDRESSES)
    again = pickle.loads(pickle.dumps(both))
    assert again.ranges == both.ranges == ranges
    assert again.addresses == {name: ADDRESSES[name] for name in ("broker-a", "broker-b")}
    assert pickle.loads(pickle.dumps(one)).addresses == {"broker-a": ADDRESSES["broker-a"]}
    assert [task.addresses for task in range_partitions([ranges, ranges[:1]], {})] == [{}, {}]
    task = BatchTask((QueueSlice(QUEUE, 0, 9),), (), (QUEUE,))
    assert TaskPartition(task, ADDRESSES).addresses == {"broker-a": ADDRESSES["broker-a"]}
    assert TaskPartition(task, {}).addresses == {}


def test_what_others_found_is_used_only_until_something_better_is_known() -> None:
    directory = BrokerDirectory({})
    directory.hint({"broker-a": "10.0.0.9:1"})
    assert directory.address("broker-a") == "10.0.0.9:1"
    assert not directory.is_settled("broker-a"), "a name server is asked first"
    directory.learn([BrokerAddresses("broker-a", "c", {0: "10.0.0.1:1"})])
    directory.hint({"broker-a": "10.0.0.9:1"})
    assert directory.address("broker-a") == "10.0.0.1:1"
    assert directory.is_settled("broker-a")


def test_who_answers_is_not_looked_up_again() -> None:
    directory = BrokerDirectory({})
    directory.hint({"broker-a": "10.0.0.9:1"})
    directory.trust("broker-a")
    assert directory.is_settled("broker-a")
    directory.suspect("10.0.0.9:1")
    assert not directory.is_settled("broker-a")


def test_replicas_instead_of_masters_have_no_address() -> None:
    directory = BrokerDirectory({})
    directory.learn(
        [BrokerAddresses("broker-a", "c", {0: "h:1"}), BrokerAddresses("broker-b", "c", {1: "h:2"})]
    )
    assert directory.broker_addresses() == {"broker-a": "h:1"}


def test_a_new_worker_reads_without_a_name_server(broker: Broker) -> None:
    with open_cluster(ConnectionSettings((broker.name_server,))) as cluster:
        cluster.create_topic(TopicConfig("orders", 1, 1))
        (queue,) = cluster.queues("orders")
        with Producer(cluster.settings) as producer:
            producer.send_batch(queue, [Message("orders", b"%d" % n) for n in range(100)])
        addresses = cluster.broker_addresses()
    assert addresses.keys() == {queue.broker}
    spec = ReadSpec("g", limits=ReadLimits(outage_ms=500))
    ranges = [OffsetRange(queue, 0, 100)]
    with open_cluster(NO_SERVER) as worker:
        with pytest.raises(ConnectError):
            list(worker.read_ranges(ranges, spec))
        worker.hint(addresses)
        chunks = list(worker.read_ranges(ranges, spec))
    assert [(chunk.start, chunk.end) for chunk in chunks][-1][1] == 100
