"""Where a group begins that has committed nothing, with a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_rocketmq.source import RocketMQDataSource
from pyspark_rocketmq.stream.reader import StreamReader
from pytest_rocketmq.handle import RocketMQ
from rocketmq_wire.errors import raise_first

BODIES = StructType([StructField("body", BinaryType())])


class Query:
    """A new query of the group: its reader, and the number of rows that it planned."""

    def __init__(self, rocketmq: RocketMQ, **options: str) -> None:
        complete = {**rocketmq.options, "group": rocketmq.group, "joinGroup": "true", **options}
        reader = RocketMQDataSource(complete).streamReader(BODIES)
        assert isinstance(reader, StreamReader)
        self.reader, self.at = reader, reader.initialOffset()

    def rows(self) -> int:
        """Plan batches until nothing is new, and count their rows."""
        count = 0
        while (end := self.reader.latestOffset(self.at)) != self.at:
            tasks: list[Any] = list(self.reader.partitions(self.at, end))
            count += sum(rows for task in tasks for _, rows in task.counts())
            self.at = end
        return count


@pytest.fixture
def join(rocketmq: RocketMQ) -> Iterator[Callable[..., Query]]:
    queries: list[Query] = []

    def start(**options: str) -> Query:
        queries.append(Query(rocketmq, **options))
        return queries[-1]

    yield start
    for query in queries:
        query.reader.stop()


@pytest.mark.parametrize(
    ("options", "old"),
    [
        ({}, 0),
        ({"startingOffsets": "latest"}, 0),
        ({"startingOffsets": "group:latest"}, 0),
        ({"startingOffsets": "earliest"}, 40),
    ],
)
def test_a_new_group_begins_at_the_end_unless_it_is_to_read_all(
    rocketmq: RocketMQ, join: Callable[..., Query], options: dict[str, str], old: int
) -> None:
    rocketmq.produce(["old"] * 40)
    query = join(**options)
    assert query.rows() == old
    rocketmq.produce(["new"] * 8)
    assert query.rows() == 8


def test_messages_sent_since_the_first_member_joined_wait_for_the_next(
    rocketmq: RocketMQ, join: Callable[..., Query]
) -> None:
    rocketmq.produce(["old"] * 40)
    first = join()
    assert first.rows() == 0
    rocketmq.produce(["new"] * 8)
    first.reader.stop()
    assert join().rows() == 8


def test_a_group_with_a_committed_offset_begins_new_queues_at_their_start(
    rocketmq: RocketMQ, join: Callable[..., Query]
) -> None:
    rocketmq.produce(["old"] * 40)
    known, *_ = rocketmq.cluster.queues(rocketmq.topic)
    raise_first(rocketmq.cluster.commit(rocketmq.group, {known: 10}))
    assert join().rows() == 30
