"""Where a stream's driver lets a new query start."""

from __future__ import annotations

import json

import pytest

from pyspark_rocketmq.errors import (
    DataLossError,
    OptionError,
)
from support.driver_queries import Run, offsets
from support.fake_cluster import FakeWorld


def test_starting_numbers_words_and_times(world: FakeWorld, run: Run) -> None:
    a, b = world.create("orders", 2)
    world.put(a, 10)
    world.put(b, 10)

    def start(**options: str) -> list[int]:
        return [n for _, n in sorted(offsets(run(**options).driver.initial_offset()).items())]

    assert start(startingOffsets="earliest") == [0, 0]
    assert start(startingOffsets="latest") == [10, 10]
    assert start(startingOffsets='{"orders":{"0":4,"1":-1}}') == [4, 10]
    assert start(startingOffsets='{"orders":{"broker-a":{"0":-2,"1":7}}}') == [0, 7]
    middle_ms = world.queues[a].stored[6][0]
    assert start(startingTimestamp=str(middle_ms)) == [6, 0]
    later = {"startingOffsetsByTimestampStrategy": "latest"}
    per_queue = json.dumps({"orders": {"0": middle_ms, "1": middle_ms + 10**6}})
    assert start(startingOffsetsByTimestamp=per_queue, **later) == [6, 10]
    with pytest.raises(OptionError, match="NO_MESSAGE_AT_TIME"):
        start(startingOffsetsByTimestamp=per_queue)
    # A time goes before numbers, as in the Kafka source.
    assert start(startingTimestamp=str(middle_ms), startingOffsets="latest") == [6, 0]


def test_starting_at_a_groups_progress_with_a_fallback(world: FakeWorld, run: Run) -> None:
    a, b = world.create("orders", 2)
    world.put(a, 10)
    world.put(b, 10)
    world.committed["g", a] = 7
    start = run(group="g", startingOffsets="group").driver.initial_offset()
    assert offsets(start) == {a: 7, b: 0}
    start = run(group="g", startingOffsets="group:latest").driver.initial_offset()
    assert offsets(start) == {a: 7, b: 10}
    with pytest.raises(OptionError, match=r"NO_PROGRESS\].*queue=1"):
        run(group="g", startingOffsets="group:error").driver.initial_offset()


def test_numbers_outside_of_what_is_there_are_a_loss(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 10)
    world.expire(queue, 5)
    numbers = {"startingOffsets": '{"orders":{"0":2}}'}
    with pytest.raises(DataLossError, match=r"OFFSET_EXPIRED\].*requested=2 available=\[5,10\): 3"):
        run(**numbers).driver.initial_offset()
    lenient = run(failOnDataLoss="false", **numbers)
    assert offsets(lenient.driver.initial_offset()) == {queue: 5}
