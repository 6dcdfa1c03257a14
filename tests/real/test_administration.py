"""What operators do with mqadmin while queries run: the connector agrees with their tools."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from support.loader import Loader
from support.queries import Batches, Queries
from support.real_cluster import RealCluster

Read = Callable[..., DataFrame]


def test_mqadmin_shows_the_offsets_that_a_query_committed(
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
