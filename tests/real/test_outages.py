"""Brokers that restart, die and come while queries run: nothing lost, nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq import drop_replays
from rocketmq_wire.model import QueueId
from support.loader import Loader
from support.queries import Batches, Queries, rows_of
from support.real_cluster import BrokerNode, RealCluster

_OUTAGE_SECONDS = 30


@pytest.fixture
def in_time(queries: Queries, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An outage of 30 s and the start of a broker on a busy machine take their time."""
    monkeypatch.setattr("support.queries._SECONDS_MAX", 300)
    yield
    queries.stop()


def crash(node: BrokerNode) -> None:
    node.kill()
    time.sleep(_OUTAGE_SECONDS)


def blink(node: BrokerNode) -> None:
    node.kill()


def leave(node: BrokerNode) -> None:
    # Until it is back, the name server knows neither it nor its topics.
    node.stop()


@pytest.mark.parametrize(
    ("outage", "per_batch"),
    [pytest.param(blink, 1_600, marks=pytest.mark.short), (crash, 400), (leave, 400)],
)
@pytest.mark.usefixtures("in_time")
def test_a_broker_that_was_away_for_a_while_mid_query_loses_and_repeats_nothing(
    broker: RealCluster,
    loader: Loader,
    topic: str,
    queries: Queries,
    outage: Callable[[BrokerNode], None],
    per_batch: int,
) -> None:
    queues = loader.create(topic, 4)
    for queue in queues:
        loader.put(queue, 2_000)
    batches = Batches()
    frame = queries.load(
        startingOffsets="earliest", maxOffsetsPerTrigger=str(per_batch),
        group=f"group-{topic}", retry__outageMs="240000",
    )  # fmt: skip
    query = queries.start(frame, batches)
    queries.until(query, lambda: len(batches.sizes) >= 2)
    outage(broker.master)
    assert len(batches.rows) < 8_000, "the outage came too late to prove anything"
    broker.master.start()
    for queue in queues:
        loader.put(queue, 100)
    queries.until(query, lambda: len(batches.rows) >= 8_400)
    query.awaitTermination(1)
    assert batches.rows == loader.rows(*queues)


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_a_broker_that_was_away_for_a_while_mid_read_loses_and_repeats_nothing(
    broker: RealCluster, loader: Loader, topic: str, read: Callable[..., DataFrame], tmp_path: Path
) -> None:
    queues = loader.create(topic, 4)
    for queue in queues:
        loader.put(queue, 30_000)
    begun = tmp_path / "begun"

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            begun.touch()
            time.sleep(1)
            yield batch

    frame = read("topic STRING, queueId INT, queueOffset BIGINT, body BINARY",
                 retry__outageMs="240000")  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(rows_of, frame.mapInArrow(slowly, frame.schema))
        while not begun.exists() and not reading.done():
            time.sleep(0.02)
        crash(broker.master)
        assert not reading.done(), "the outage came too late to prove anything"
        broker.master.start()
        assert reading.result(300) == loader.rows(*queues)


@pytest.mark.usefixtures("in_time")
def test_a_query_goes_on_without_the_name_server(
    broker: RealCluster, loader: Loader, topic: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 10)
    batches = Batches()
    query = queries.start(queries.load(startingOffsets="earliest"), batches)
    queries.until(query, lambda: len(batches.rows) == 10)
    broker.stop_name_server()
    try:
        loader.put(queue, 10)
        queries.until(query, lambda: len(batches.rows) == 20)
    finally:
        broker.start_name_server()
        broker.await_registered(broker.master)
    loader.put(queue, 10)
    queries.until(query, lambda: len(batches.rows) == 30)
    assert batches.rows == loader.rows(queue)


@pytest.mark.usefixtures("in_time")
def test_the_queues_of_a_broker_that_is_added_are_found(
    broker: RealCluster, loader: Loader, topic: str, queries: Queries
) -> None:
    (first,) = loader.create(topic, 1)
    loader.put(first, 10)
    batches = Batches()
    frame = queries.load(startingOffsets="earliest", group=f"group-{topic}")
    query = queries.start(frame, batches)
    queries.until(query, lambda: len(batches.rows) == 10)
    node = broker.add_broker("broker-b")
    try:
        second = QueueId(topic, "broker-b", 0)
        assert second in loader.create(topic, 1)
        loader.put(second, 7)
        loader.put(first, 3)
        queries.until(query, lambda: len(batches.rows) == 20)
        queries.until(
            query,
            lambda: (
                loader.cluster.committed_offsets(f"group-{topic}", [first, second])
                == {first: 13, second: 7}
            ),
        )
        assert batches.rows == loader.rows(first, second)
    finally:
        queries.stop()
        broker.remove(node)


@pytest.mark.usefixtures("in_time")
def test_queues_of_a_stopped_broker_wait_and_other_queues_are_read(
    broker: RealCluster, loader: Loader, topic: str, queries: Queries
) -> None:
    node = broker.add_broker("broker-b")
    try:
        first, second = loader.create(topic, 1)
        assert second == QueueId(topic, "broker-b", 0)
        loader.put(first, 10)
        loader.put(second, 10)
        batches = Batches()
        query = queries.start(queries.load(startingOffsets="earliest"), batches)
        queries.until(query, lambda: len(batches.rows) == 20)
        leave(node)
        loader.put(first, 5)
        queries.until(query, lambda: len(batches.rows) == 25)
        node.start()
        loader.put(second, 5)
        queries.until(query, lambda: len(batches.rows) >= 30)
        assert batches.rows == loader.rows(first, second)
    finally:
        queries.stop()
        broker.remove(node)


@pytest.mark.parametrize("delivery", ["transactional", "at-least-once"])
@pytest.mark.usefixtures("in_time")
def test_a_stream_writes_on_after_its_only_broker_was_away(
    spark: SparkSession,
    broker: RealCluster,
    loader: Loader,
    topic: str,
    read: Callable[..., DataFrame],
    tmp_path: Path,
    delivery: str,
) -> None:
    loader.create(topic, 2)
    plural = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    writer = plural.selectExpr("string(value) body").writeStream.format("rocketmq")
    writer = writer.options(nameServer=broker.name_server, topic=topic, delivery=delivery)
    writer = writer.option("retry.outageMs", "240000").trigger(processingTime="200 milliseconds")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        _await_batch(query, 3)
        leave(broker.master)
        # The batch that is under way finds neither the broker nor a route to its topic.
        time.sleep(5)
        assert query.lastProgress is not None
        before = query.lastProgress["batchId"]
        broker.master.start()
        _await_batch(query, before + 4)
    finally:
        query.stop()
    rows = drop_replays(read(includeProperties="true"))
    values = sorted(int(bytes(row.body)) for row in rows.select("body").collect())
    # Of a batch that is stopped half of the rows may be there.
    expected = 20 * (before + 4)
    assert values[:expected] == list(range(expected))
    assert len(values) == len(set(values))


def _await_batch(query: StreamingQuery, number: int) -> None:
    ends = time.monotonic() + 200
    while query.lastProgress is None or query.lastProgress["batchId"] < number:
        assert query.isActive, query.exception()
        assert time.monotonic() < ends, f"batch {number} is not done: {query.lastProgress}"
        time.sleep(0.1)
