"""What the reader expects of a driver, asked of all three: pull, group member and pop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.stream.driver import Offset, StreamDriver, open_driver
from support.driver_queries import Query
from support.fake_cluster import FakeWorld
from support.group_member_queries import GroupWorld, JoinedQuery
from support.pop_queries import PopWorld, driver_of, popped


class Source(Protocol):
    """A topic of one queue and the driver that reads it."""

    driver: StreamDriver

    def __init__(self, **options: str) -> None: ...

    def put(self, count: int) -> None: ...


class Pull:
    """A driver that pulls by offset."""

    def __init__(self, **options: str) -> None:
        self.world = FakeWorld()
        (self.queue,) = self.world.create("orders", 1)
        self.driver: StreamDriver = Query(self.world, startingOffsets="earliest", **options).driver

    def put(self, count: int) -> None:
        self.world.put(self.queue, count)


class GroupMember:
    """A driver that is a member of its group."""

    def __init__(self, **options: str) -> None:
        self.world = GroupWorld(1)
        query = JoinedQuery(self.world, "one", **options)
        query.start()
        assert query.driver is not None
        self.driver: StreamDriver = query.driver

    def put(self, count: int) -> None:
        self.world.put(self.world.made[0], count)


class Pop:
    """A driver that pops."""

    def __init__(self, **options: str) -> None:
        self.world = PopWorld()
        self._count = 0
        self.driver: StreamDriver = driver_of(self.world, backlog=0, **options)

    def put(self, count: int) -> None:
        for _ in range(count):
            self.world.answers.append(popped(self._count))
            self._count += 1


@pytest.fixture(params=[Pull, GroupMember, Pop])
def kind(request: pytest.FixtureRequest) -> type[Source]:
    made: type[Source] = request.param
    return made


@pytest.fixture
def source(kind: type[Source]) -> Iterator[Source]:
    made = kind()
    yield made
    made.driver.close()


def through_text(offset: Offset) -> dict[str, Any]:
    return dict(json.loads(json.dumps(offset)))


def count_of(driver: StreamDriver, start: Offset, end: Offset) -> int:
    tasks = driver.partitions(through_text(start), through_text(end))
    return sum(count for task in tasks for _, count in task.counts())


def batches(driver: StreamDriver, start: Offset) -> list[int]:
    """The sizes of the batches until there is none."""
    sizes = []
    while (end := driver.latest_offset(through_text(start))) != start:
        sizes.append(count_of(driver, start, end))
        start = end
    return sizes


def test_a_new_query_begins_where_it_began_before(source: Source) -> None:
    first = source.driver.initial_offset()
    assert source.driver.initial_offset() == first
    assert through_text(first) == first


def test_without_messages_the_end_is_the_start_itself(source: Source) -> None:
    start = source.driver.initial_offset()
    assert source.driver.latest_offset(start) is start
    source.put(2)
    end = source.driver.latest_offset(start)
    given = through_text(end)
    assert source.driver.latest_offset(given) is given


def test_a_batch_has_the_same_tasks_however_often_spark_asks(source: Source) -> None:
    start = source.driver.initial_offset()
    source.put(3)
    end = source.driver.latest_offset(start)
    assert [count_of(source.driver, start, end) for _ in range(3)] == [3, 3, 3]
    assert not source.driver.partitions(end, end)


def test_limits_cut_what_is_there_into_batches(kind: type[Source]) -> None:
    source = kind(maxOffsetsPerTrigger="2")
    source.put(5)
    assert batches(source.driver, source.driver.initial_offset()) == [2, 2, 1]
    source.driver.close()


def test_available_now_ends_with_what_was_there_when_it_began(kind: type[Source]) -> None:
    source = kind(maxOffsetsPerTrigger="2")
    source.put(4)
    if isinstance(source, Pop):
        source.driver = driver_of(source.world, backlog=4, maxOffsetsPerTrigger="2")
    source.driver.prepare_available_now()
    start = source.driver.initial_offset()
    first = source.driver.latest_offset(start)
    source.put(7)
    assert [count_of(source.driver, start, first), *batches(source.driver, first)] == [2, 2]
    source.driver.close()


def test_the_first_batch_of_a_run_does_not_wait_for_the_minimum(kind: type[Source]) -> None:
    minimum = {} if kind is Pop else {"minOffsetsPerTrigger": "100"}
    source = kind(**minimum)
    source.put(3)
    start = source.driver.initial_offset()
    assert count_of(source.driver, start, source.driver.latest_offset(start)) == 3
    source.driver.close()


def test_the_latest_offsets_are_reported_as_plain_values(source: Source) -> None:
    assert source.driver.report_latest() is None
    start = source.driver.initial_offset()
    source.put(2)
    end = source.driver.latest_offset(start)
    reported = source.driver.report_latest()
    assert reported is not None
    assert through_text(reported) == reported
    source.driver.confirm(end)
    assert source.driver.latest_offset(end, is_durable=False, is_unlimited=True) is end


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "PullDriver"),
        ({"group": "g", "joinGroup": "true"}, "GroupMemberDriver"),
        ({"group": "g", "consumeMode": "pop"}, "PopDriver"),
    ],
)
def test_the_options_choose_the_driver(given: dict[str, str], name: str) -> None:
    driver = open_driver(read_options({"nameServer": "h:1", "subscribe": "orders", **given}))
    assert type(driver).__name__ == name
    driver.close()
