"""The stream reader as Spark drives it, old and new ways, over a real broker and without Spark."""

from __future__ import annotations

import inspect
import json
import pickle
import re
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.read.task import RangePartition
from pyspark_rocketmq.source import RocketMQDataSource
from pyspark_rocketmq.stream.admission import ReadAllAvailable, ReadMaxRows
from pyspark_rocketmq.stream.reader import StreamReader
from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import OffsetRange
from support.loader import Loader

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("queueId", IntegerType()),
        StructField("queueOffset", LongType()),
        StructField("body", BinaryType()),
    ]
)
Make = Callable[..., StreamReader]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(BrokerConfig(flush="memory", grpc=False)) as running:
        yield running


@pytest.fixture
def loader(broker: Broker) -> Iterator[Loader]:
    with open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster:
        yield Loader(cluster)


@pytest.fixture
def reader(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[StreamReader] = []
    before = signal.getsignal(signal.SIGTERM)

    def make(**options: str) -> StreamReader:
        full = {"nameServer": broker.name_server, "startingOffsets": "earliest", **options}
        source = RocketMQDataSource({"subscribe": topic_of(request), **full})
        made.append(source.streamReader(SCHEMA))
        return made[-1]

    yield make
    for each in made:
        each.stop()
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return topic_of(request)


def topic_of(request: pytest.FixtureRequest) -> str:
    return re.sub(r"[^\w-]", "_", str(request.node.name))[:60]


def through_text(value: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(value)))


def rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    # The reader that reads is another one, which only knows what was pickled.
    worker = pickle.loads(pickle.dumps(reader))
    found = []
    for partition in reader.partitions(through_text(start), through_text(end)):
        for batch in worker.read(pickle.loads(pickle.dumps(partition))):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return sorted(found)


def test_a_reader_does_nothing_before_its_first_call(reader: Make) -> None:
    made = reader(nameServer="127.0.0.1:1")
    assert made._driver is None
    assert made.reportLatestOffset() is None
    made.stop()


def test_the_signature_is_the_one_that_spark_looks_for() -> None:
    parameters = inspect.signature(StreamReader.latestOffset).parameters
    assert list(parameters) == ["self", "start", "limit"]
    assert all(parameters[name].default is None for name in ("start", "limit"))


def test_new_spark_gives_start_and_limit(loader: Loader, topic: str, reader: Make) -> None:
    queues = loader.create(topic, 2)
    loader.put(queues[0], 25)
    made = reader(maxOffsetsPerTrigger="10")
    limit = made.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    start = made.initialOffset()
    first = made.latestOffset(through_text(start), limit)
    assert rows(made, start, first) == loader.rows(queues[0], end=10)
    rest = made.latestOffset(through_text(first), ReadAllAvailable())
    assert rows(made, first, rest) == loader.rows(queues[0], start=10)
    assert made.latestOffset(through_text(rest), limit) == rest
    reported = made.reportLatestOffset()
    assert reported == {"version": 1, "offsets": {topic: {"broker-a": {"0": 25, "1": 0}}}}


def test_without_limits_the_default_limit_is_all_available(
    loader: Loader, topic: str, reader: Make
) -> None:
    loader.create(topic, 1)
    assert reader().getDefaultReadLimit() == ReadAllAvailable()


def test_old_spark_gives_nothing_and_limits_hold_all_the_same(
    loader: Loader, topic: str, reader: Make
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 25)
    made = reader(maxOffsetsPerTrigger="10", group="g-old")
    start = made.initialOffset()
    ends = [made.latestOffset() for _ in range(4)]
    assert [SourceOffset.from_json(end).offsets[queue] for end in ends] == [10, 20, 25, 25]
    assert ends[3] == ends[2]
    assert rows(made, start, ends[0]) == loader.rows(queue, end=10)
    made.stop()
    assert loader.cluster.committed_offsets("g-old", [queue]) == {queue: 25}
    # A restart: old Spark passes the last offset by asking for an empty range.
    again = reader(maxOffsetsPerTrigger="10")
    assert again.partitions(ends[1], ends[1]) == []
    assert SourceOffset.from_json(again.latestOffset()).offsets[queue] == 25


def test_old_spark_logs_that_a_limit_ends_a_run(
    loader: Loader, topic: str, reader: Make, caplog: pytest.LogCaptureFixture
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 25)
    made = reader(maxOffsetsPerTrigger="10", maxBytesPerTrigger="1m")
    for _ in range(3):
        made.latestOffset()
    (expected,) = [line for line in caplog.messages if "AvailableNow" in line]
    assert "one batch, of what maxOffsetsPerTrigger and maxBytesPerTrigger allows" in expected
    caplog.clear()
    for other in (reader(), reader(minOffsetsPerTrigger="100")):
        other.latestOffset()
    limited = reader(maxOffsetsPerTrigger="10")
    limited.latestOffset(limited.initialOffset(), limited.getDefaultReadLimit())
    assert not [line for line in caplog.messages if "AvailableNow" in line]


def test_the_first_batch_of_a_run_does_not_wait_for_a_minimum(
    loader: Loader, topic: str, reader: Make
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 25)
    made = reader(minOffsetsPerTrigger="100")
    end = made.latestOffset()
    assert SourceOffset.from_json(end).offsets == {queue: 25}
    loader.put(queue, 5)
    assert made.latestOffset() == end
    limited = reader(minOffsetsPerTrigger="100")
    end = limited.latestOffset(limited.initialOffset(), limited.getDefaultReadLimit())
    assert SourceOffset.from_json(end).offsets == {queue: 30}
    loader.put(queue, 5)
    assert limited.latestOffset(end, limited.getDefaultReadLimit()) == end


def test_a_line_counts_what_each_batch_reads(
    loader: Loader, topic: str, reader: Make, caplog: pytest.LogCaptureFixture
) -> None:
    queues = loader.create(topic, 2)
    loader.put(queues[0], 25)
    made = reader(logBatches="true", minPartitions="3")
    start = made.initialOffset()
    end = made.latestOffset(start)
    caplog.clear()
    made.partitions(start, end)
    made.partitions(end, end)
    expected = f"batch of 25 messages in 3 tasks: {topic} 25 in 1 queue"
    assert [line for line in caplog.messages if "messages in" in line] == [expected]


def test_a_replayed_batch_reads_the_same(loader: Loader, topic: str, reader: Make) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 10)
    made = reader()
    start = made.initialOffset()
    end = made.latestOffset(start)
    loader.put(queues[0], 5)
    later = reader(startingOffsets="latest")
    assert rows(later, later.initialOffset(), end) == loader.rows(queues[0], queues[1], end=10)


@pytest.mark.parametrize("has_begun", [True, False])
@pytest.mark.parametrize("joins", ["true", "false"])
def test_no_logged_batch_is_read_from_a_new_topic(
    loader: Loader, topic: str, reader: Make, joins: str, has_begun: bool
) -> None:
    group = f"g-{joins}-{has_begun}"
    queue, other = loader.create(topic, 2)
    loader.put(queue, 10)
    made = reader(group=group, joinGroup=joins)
    start = made.initialOffset()
    if has_begun:
        start = made.latestOffset(start)
        loader.put(queue, 10)
    end = made.latestOffset(start)
    same = reader(group=group, joinGroup=joins)
    assert rows(same, start, end) == loader.rows(queue, start=10 * has_begun)
    made.stop()
    loader.cluster.delete_topic(topic)
    loader.create(topic, 2)
    loader.sent.clear()
    loader.put(other, 3)
    loader.put(queue, 30)
    expected = rf"TOPIC_RECREATED\] .*requested={10 * has_begun} available=\[0,30\)"
    with pytest.raises(DataLossError, match=expected):
        reader(group=group, joinGroup=joins).partitions(start, end)
    lenient = reader(group=group, joinGroup=joins, failOnDataLoss="false")
    assert lenient.partitions(start, end) == []
    found = lenient.latestOffset(end)
    assert rows(lenient, end, found) == loader.rows(queue, other)


def test_a_logged_batch_is_left_to_its_tasks_while_the_cluster_is_unavailable(
    loader: Loader, topic: str, reader: Make, caplog: pytest.LogCaptureFixture
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 10)
    made = reader()
    start = made.initialOffset()
    end = made.latestOffset(start)
    away = reader(nameServer="127.0.0.1:1", connectTimeoutMs="300")
    (partition,) = away.partitions(start, end)
    assert isinstance(partition, RangePartition)
    assert partition.ranges == (OffsetRange(queue, 0, 10),)
    assert "cannot find out whether the planned messages are still there" in caplog.text


def test_stop_ends_every_thread(loader: Loader, topic: str, reader: Make) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 10)
    before = set(threading.enumerate())
    made = reader(group="g-threads")
    made.latestOffset(made.latestOffset(made.initialOffset()))
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert {"rocketmq-end-offsets", "rocketmq-discovery", "rocketmq-offset-commit"} <= names
    made.stop()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not left
