"""The main road on every supported Spark line: `./run smoke-4.0` runs these on the oldest one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from rocketmq_broker_sim import Broker
from support.loader import Loader
from support.queries import Queries, rows_of

pytestmark = pytest.mark.smoke

Read = Callable[..., DataFrame]


@pytest.mark.parametrize("over_grpc", [False, True], ids=["nameServer", "endpoints"])
def test_a_batch_read_gives_every_message_once(
    over_grpc: bool, broker: Broker, loader: Loader, topic: str, read: Read
) -> None:
    queues = loader.create(topic, 3)
    for queue in queues:
        loader.put(queue, 1_200)
    where = {"endpoints": broker.endpoints} if over_grpc else {}
    assert rows_of(read(**where)) == loader.rows(*queues)


def test_columns_and_properties_arrive_with_their_types(
    loader: Loader, topic: str, read: Read
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 1, tag="T", properties={"colour": "blue"})
    (row,) = read(includeProperties="true").collect()
    assert (row.topic, row.brokerName, row.queueId, row.queueOffset) == (topic, "broker-a", 0, 0)
    assert (row.tags, row["keys"], row.properties["colour"]) == ("T", "k", "blue")
    assert row.bornTimestamp <= row.storeTimestamp
    (only,) = read(schema="queueOffset BIGINT, body BINARY").collect()
    assert (only.queueOffset, bytes(only.body)) == (0, b"%s/0" % topic.encode())


def test_a_stream_goes_on_where_it_ended(loader: Loader, topic: str, queries: Queries) -> None:
    queues = loader.create(topic, 2)
    loader.put(queues[0], 300)
    first = queries.available(startingOffsets="earliest")
    loader.put(queues[1], 200)
    second = queries.available(startingOffsets="earliest")
    assert first.rows == loader.rows(queues[0])
    assert sorted(first.rows + second.rows) == loader.rows(*queues)


def test_a_running_stream_sees_what_arrives_and_commits_its_group(
    loader: Loader, topic: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 10)
    seen: list[int] = []

    def count(frame: DataFrame, _batch_id: int) -> None:
        seen.append(frame.count())

    frame = queries.load(startingOffsets="earliest", group=f"group-{topic}")
    query = queries.start(frame, count)
    queries.until(query, lambda: sum(seen) == 10)
    loader.put(queue, 5)
    queries.until(query, lambda: sum(seen) == 15)
    committed = loader.cluster.progress
    queries.until(query, lambda: committed(f"group-{topic}", [queue]) == {queue: 15})


def test_an_unknown_option_is_refused_with_the_nearest_known_one(read: Read) -> None:
    with pytest.raises(PySparkException, match="startingOffsets"):
        read(startingOfsets="latest").count()
