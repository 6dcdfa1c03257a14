"""A group's progress at the broker: the end of the last finished batch, and nothing else."""

from __future__ import annotations

import json
import time

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq import OffsetCommitListener
from rocketmq_broker import Broker
from rocketmq_wire.model import ConsumerInfo, QueueId
from rocketmq_wire.requests.groups import Heartbeat
from support.loader import Loader
from support.queries import Batches, Queries


def committed(loader: Loader, group: str, *queues: QueueId) -> list[object]:
    return list(loader.cluster.committed_offsets(group, queues).values())


@pytest.fixture
def group(topic: str) -> str:
    return f"group-{topic}"


def test_committed_offsets_are_exact_after_each_batch_and_at_the_end(
    loader: Loader, topic: str, group: str, queries: Queries
) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 20)
    at_batch: list[list[object]] = []

    def watch(_frame: DataFrame, _batch_id: int) -> None:
        # While batch N runs, batch N-1 is finished; its commit is under way off the planning path.
        for _ in range(100):
            found = committed(loader, group, *queues)
            if found == [5 * len(at_batch)] * 2 or not at_batch:
                break
            time.sleep(0.02)
        at_batch.append(found)

    frame = queries.load(group=group, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert queries.start(frame, watch, availableNow=True).awaitTermination(120)
    assert at_batch == [[None, None], [5, 5], [10, 10], [15, 15]]
    assert committed(loader, group, *queues) == [20, 20]


def test_committed_offsets_stay_until_a_batch_is_done(
    loader: Loader, topic: str, group: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 20)
    loader.cluster.commit(group, {queue: 12})
    batches = queries.available(group=group, startingOffsets="group", maxOffsetsPerTrigger="5")
    assert batches.rows == loader.rows(queue, start=12)
    assert committed(loader, group, queue) == [20]
    loader.cluster.commit(group, {queue: 3})
    with pytest.raises(PySparkException, match="dies"):
        queries.run(Batches(fail_at=0), "other", group=group, startingOffsets="earliest")
    assert committed(loader, group, queue) == [3]


def test_nothing_is_committed_without_a_group_or_under_commit_offsets_false(
    loader: Loader, topic: str, group: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 20)
    queries.available("a", startingOffsets="earliest")
    queries.available("b", startingOffsets="earliest", group=group, commitOffsets="false")
    assert committed(loader, group, queue) == [None]


def test_a_running_query_keeps_its_committed_offsets_up_to_date(
    loader: Loader, topic: str, group: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 20)
    query = queries.start(queries.load(group=group, startingOffsets="earliest"), Batches())
    queries.until(query, lambda: committed(loader, group, queue) == [20])
    loader.put(queue, 5)
    queries.until(query, lambda: committed(loader, group, queue) == [25])


def test_a_group_with_live_members_is_refused(
    loader: Loader, topic: str, group: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5)
    member = ConsumerInfo(
        group, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET",
        ((topic, "*", "TAG", 0),),
    )  # fmt: skip
    beat = Heartbeat("10.0.0.9@other", consumers=(member,))
    loader.cluster.transport.call(beat, broker=queue.broker, timeout_ms=3_000)
    with pytest.raises(PySparkException, match=r"ROCKETMQ_GROUP\.IN_USE\].*10\.0\.0\.9@other"):
        queries.available(group=group, startingOffsets="earliest")
    batches = queries.available(group=group, startingOffsets="earliest", commitOffsets="false")
    assert batches.rows == loader.rows(queue)


def test_confirmed_commits_what_spark_confirms_one_batch_late(
    loader: Loader, topic: str, group: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 20)
    queries.available(
        group=group, startingOffsets="earliest", maxOffsetsPerTrigger="5",
        commitOffsets="confirmed",
    )  # fmt: skip
    assert committed(loader, group, queue) == [15]


def test_the_listener_commits_where_spark_asks_for_nothing_more(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str, group: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 20)
    listener = OffsetCommitListener(
        {"nameServer": broker.name_server, "group": group, "subscribe": topic}
    )
    spark.streams.addListener(listener)
    try:
        frame = queries.load(startingOffsets="earliest", group=group)
        assert queries.start(frame, Batches(), once=True).awaitTermination(120)
        for _ in range(100):
            if committed(loader, group, queue) == [20]:
                break
            time.sleep(0.05)
        assert committed(loader, group, queue) == [20]
        # With a long trigger the source is not asked again for a minute.
        loader.put(queue, 5)
        query = queries.start(frame, Batches(), processingTime="1 minute")
        queries.until(query, lambda: committed(loader, group, queue) == [25])
        query.stop()
        assert committed(loader, group, queue) == [25]
    finally:
        spark.streams.removeListener(listener)
        listener.close()


def test_with_async_checkpoints_a_commit_is_never_ahead_of_a_restart(
    loader: Loader, topic: str, group: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 20)
    frame = queries.load(
        group=group, startingOffsets="earliest", maxOffsetsPerTrigger="5",
        commitOffsets="confirmed",
    )  # fmt: skip
    writer = frame.writeStream.format("noop").option("asyncProgressTrackingEnabled", "true")
    writer = writer.option("checkpointLocation", str(queries.folder / "checkpoint"))
    query = writer.option("asyncProgressTrackingCheckpointIntervalMs", "1000").start()
    try:
        # Spark confirms with the first batch behind the interval, so there must be more batches.
        def is_committed_while_more_comes() -> bool:
            loader.put(queue, 1)
            return committed(loader, group, queue) != [None]

        queries.until(query, is_committed_while_more_comes)
    finally:
        query.stop()
    (confirmed,) = committed(loader, group, queue)
    assert isinstance(confirmed, int)
    # Spark writes offsets and commits of some batches only, and restarts behind the last of those.
    checkpoint = queries.folder / "checkpoint"
    done = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    *_, offset = (checkpoint / "offsets" / str(done)).read_text().splitlines()
    restarts_at = json.loads(offset)["offsets"][queue.topic][queue.broker][str(queue.index)]
    assert 0 < confirmed <= restarts_at
