"""What operators do with mqadmin while queries run: the connector agrees with their tools."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import Bounds, QueueId, Subscription
from support.loader import Loader
from support.queries import Batches, Queries, rows_of
from support.real_cluster import RealCluster, run_program

Read = Callable[..., DataFrame]

_JAVA = Path(__file__).parent / "java"


def test_consumer_progress_shows_what_a_query_committed(
    broker: RealCluster, loader: Loader, topic: str, group: str, queries: Queries
) -> None:
    queues = loader.create(topic, 2)
    loader.put(queues[0], 30)
    loader.put(queues[1], 12)
    queries.available(group=group, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    loader.put(queues[1], 5)
    # Without a topic, all that 4.9 can, it wants the group's retry topic to be there.
    loader.create(f"%RETRY%{group}", 1)
    of_topic = () if broker.is_4 else ("-t", topic)
    printed = broker.admin("consumerProgress", "-g", group, *of_topic)
    rows = [line.split() for line in printed.splitlines() if line.startswith(topic)]
    found = {row[2]: (int(row[3]), int(row[4])) for row in rows}
    assert found == {"0": (30, 30), "1": (17, 12)}, printed


def test_queues_that_update_topic_adds_are_found(
    broker: RealCluster, loader: Loader, topic: str, queries: Queries
) -> None:
    (first,) = loader.create(topic, 1)
    loader.put(first, 5)
    batches = Batches()
    query = queries.start(queries.load(startingOffsets="earliest"), batches)
    queries.until(query, lambda: len(batches.rows) == 5)
    broker.admin("updateTopic", "-c", "TestCluster", "-t", topic, "-r", "3", "-w", "3")
    added = loader.cluster.queues(topic)
    assert len(added) == 3
    for queue in added:
        loader.put(queue, 4)
    queries.until(query, lambda: len(batches.rows) == 17)
    assert batches.rows == loader.rows(*added)


@pytest.mark.parametrize("timestamp", ["now", "0"])
def test_reset_offset_by_time_during_a_query_neither_loses_nor_repeats(
    broker: RealCluster, loader: Loader, topic: str, group: str, queries: Queries, timestamp: str
) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 50)
    batches = Batches()
    frame = queries.load(startingOffsets="earliest", group=group, maxOffsetsPerTrigger="30")
    query = queries.start(frame, batches)
    queries.until(query, lambda: len(batches.rows) == 100)
    broker.admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", timestamp, "-f", "true")
    for queue in queues:
        loader.put(queue, 40)
    queries.until(query, lambda: len(batches.rows) >= 180)
    assert batches.rows == loader.rows(*queues)


def test_a_group_that_never_committed_starts_where_the_fallback_says(
    loader: Loader, topic: str, group: str, read: Read
) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 20)
    # 4.9 answers 0 here, as if the group had committed that.
    with pytest.raises(PySparkException, match=r"ROCKETMQ_"):
        read(group=group, startingOffsets="group:error").count()
    loader.cluster.commit(group, dict.fromkeys(queues, 0))
    assert read(group=group, startingOffsets="group:error").count() == 40


def test_sql_is_refused_by_a_broker_that_has_it_off(loader: Loader, topic: str, read: Read) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5)
    with pytest.raises(BrokerError, match="does not support consumer to filter message by SQL92"):
        loader.cluster.pull(queue, 0, 5, subscription=Subscription("a > 1", "SQL92"))
    with pytest.raises(PySparkException, match="'sql'"):
        read(sql="a > 1").count()


@pytest.fixture
def expiring(broker: RealCluster) -> Iterator[Callable[[], None]]:
    """Lets whatever is not in the newest log file expire; afterwards files are kept again."""
    address = broker.master.address

    def set_hours(hours: int) -> None:
        broker.admin(
            "updateBrokerConfig", "-b", address, "-k", "fileReservedTime", "-v", str(hours)
        )

    yield lambda: set_hours(0)
    set_hours(72)


def test_messages_that_retention_deleted_are_a_loss_with_numbers(
    broker: RealCluster,
    loader: Loader,
    topic: str,
    read: Read,
    queries: Queries,
    expiring: Callable[[], None],
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5)
    assert len(queries.available(startingOffsets="earliest").rows) == 5
    loader.put(queue, 495)
    starts = json.dumps({topic: {"0": 5}})
    planned = read(startingOffsets=starts)
    # Four of 4 MB end up in another log file, of 16 MB, than what is in front of them.
    filler = loader.create(f"{topic}-filler", 1)[0]
    run_program(
        broker.version, _JAVA / "Send.java", broker.name_server, filler.topic, "broker-a",
        *["large"] * 5,
    )  # fmt: skip
    loader.put(queue, 100)
    expiring()
    held = _bounds_after_retention(loader, queue)
    assert (held.start, held.end) == (500, 600)
    message = rf"OFFSET_EXPIRED\] topic={topic} .*requested=5 available=\[500,600\): 495 messages"
    with pytest.raises(PySparkException, match=message):
        queries.available()
    with pytest.raises(PySparkException, match=message):
        planned.count()
    assert rows_of(read()) == loader.rows(queue, start=500)
    assert queries.available(failOnDataLoss="false").rows == loader.rows(queue, start=500)
    assert queries.available().rows == []


def _bounds_after_retention(loader: Loader, queue: QueueId) -> Bounds:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        held = loader.cluster.bounds([queue])[queue]
        if isinstance(held, Bounds) and held.start > 0:
            return held
        time.sleep(0.5)
    raise AssertionError(f"nothing of {queue} expired: {held}")
