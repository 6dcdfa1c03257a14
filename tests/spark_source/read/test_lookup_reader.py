"""Messages by key and by id: the broker's index gives their offsets, and only those are read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.read.batch_reader import LookupReader, join_neighbours
from pyspark_rocketmq.source import RocketMQDataSource
from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_client.cluster import open_cluster
from rocketmq_client.lookup import find_by_id
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import OffsetRange, QueueId
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.messages import SendBatch
from support.loader import Loader

SCHEMA = StructType(
    [
        StructField("body", BinaryType()),
        StructField("queueOffset", LongType()),
        StructField("offsetMsgId", StringType()),
    ]
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(BrokerConfig(flush="memory", grpc=False)) as running:
        yield running


@pytest.fixture
def loader(broker: Broker) -> Iterator[Loader]:
    with open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster:
        yield Loader(cluster)


def send(loader: Loader, queue: QueueId, keys: list[str], start: int) -> None:
    entries = [
        BatchEntry(0, b"%d" % number, encode_properties({"KEYS": key, "UNIQ_KEY": f"U{number}"}))
        for number, key in enumerate(keys, start)
    ]
    request = SendBatch("loader", queue, 1_700_000_000_000, encode_batch(entries))
    loader.cluster.transport.call(request, broker=queue.broker, timeout_ms=10_000)
    # The index follows the log, here as in RocketMQ.
    last, deadline = f"U{start + len(keys) - 1}", time.monotonic() + 20
    while not find_by_id(loader.cluster, queue.topic, last, 1):
        assert time.monotonic() < deadline


def reader(broker: Broker, topic: str, **options: str) -> LookupReader:
    given = {"nameServer": broker.name_server, "subscribe": topic, **options}
    made = RocketMQDataSource(given).reader(SCHEMA)
    assert isinstance(made, LookupReader)
    return made


def rows(made: LookupReader) -> list[dict[str, Any]]:
    return [
        row for task in made.partitions() for batch in made.read(task) for row in batch.to_pylist()
    ]


def numbers(made: LookupReader) -> list[int]:
    return sorted(int(row["body"]) for row in rows(made))


def test_all_messages_with_a_key_and_no_others_are_read(broker, loader):
    queues = loader.create("keyed", 2)
    send(loader, queues[0], ["order-42", "order-43", "a order-42 b", "order-4"], 0)
    send(loader, queues[1], ["order-42"] * 3, 4)
    assert numbers(reader(broker, "keyed", messageKey="order-42")) == [0, 2, 4, 5, 6]
    assert numbers(reader(broker, "keyed", messageKey="b")) == [2]
    assert numbers(reader(broker, "keyed", messageKey="order-44")) == []
    found = reader(broker, "keyed", messageKey="order-42", maxPartitions="5", minPartitions="5")
    # Three neighbours in the second queue, two apart in the first.
    assert sorted(sum(map(len, task.ranges)) for task in found.partitions()) == [1] * 5
    assert numbers(found) == [0, 2, 4, 5, 6]


def test_a_message_is_found_by_both_of_its_ids(broker, loader):
    (queue,) = loader.create("named", 1)
    send(loader, queue, ["k"] * 5, 100)
    (row,) = rows(reader(broker, "named", messageId="U103"))
    assert (row["body"], row["queueOffset"]) == (b"103", 3)
    assert rows(reader(broker, "named", messageId=str(row["offsetMsgId"]))) == [row]
    assert rows(reader(broker, "named", messageId="U99")) == []


def test_a_second_that_holds_more_than_a_page_is_an_error_and_no_part_of_it(broker, loader):
    (queue,) = loader.create("burst", 1)
    send(loader, queue, ["burst"] * 100, 0)
    with pytest.raises(Exception, match=r"ROCKETMQ_LOOKUP\.INCOMPLETE.*filter by the column keys"):
        reader(broker, "burst", messageKey="burst").partitions()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tags": "A"}, "'tags'.*no meaning beside 'messageKey'"),
        ({"startingOffsets": "earliest"}, "'startingOffsets'.*beside 'messageKey'"),
        ({"messageId": "x"}, "'messageId'.*beside 'messageKey'"),
    ],
)
def test_what_does_not_go_with_a_key_is_refused(broker, options, complaint):
    with pytest.raises(OptionError, match=complaint):
        reader(broker, "keyed", messageKey="k", **options)


def test_our_grpc_service_looks_nothing_up():
    source = RocketMQDataSource({"endpoints": "h:1", "subscribe": "t", "messageKey": "k"})
    with pytest.raises(OptionError, match="needs 'nameServer'"):
        source.reader(SCHEMA)


def test_neighbours_are_read_together():
    a, b = QueueId("t", "b", 0), QueueId("t", "b", 1)
    found = [(b, 7), (a, 2), (a, 1), (a, 2), (a, 4)]
    assert join_neighbours(found) == [
        OffsetRange(a, 1, 3),
        OffsetRange(a, 4, 5),
        OffsetRange(b, 7, 8),
    ]
