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
    with pytest.raises(OptionError, match=r"^\[ROCKETMQ_OPTION\.NO_MESSAGE_AT_TIME\] "):
        start(startingOffsetsByTimestamp=per_queue)
    # A time goes before numbers, as in the Kafka source.
    assert start(startingTimestamp=str(middle_ms), startingOffsets="latest") == [6, 0]


def test_starting_at_committed_offsets_with_a_fallback(world: FakeWorld, run: Run) -> None:
    a, b = world.create("orders", 2)
    world.put(a, 10)
    world.put(b, 10)
    world.committed["g", a] = 7
    start = run(group="g", startingOffsets="group").driver.initial_offset()
    assert offsets(start) == {a: 7, b: 0}
    start = run(group="g", startingOffsets="group:latest").driver.initial_offset()
    assert offsets(start) == {a: 7, b: 10}
    with pytest.raises(OptionError, match=r"^\[ROCKETMQ_OPTION\.NO_PROGRESS\].*queue=1"):
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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"subscribe": "orders,bills"}, {"subscribe": "orders"}),
        ({"subscribePattern": "orders|bills"}, {"subscribePattern": "orders"}),
        ({"subscribe": "orders,bills"}, {"assign": '{"orders":[0]}'}),
    ],
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_restart_that_selects_less_keeps_the_other_offsets_and_leaves_them_unread(
    world: FakeWorld, run: Run, before: dict[str, str], after: dict[str, str], is_gone: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    (order,), (bill,) = world.create("orders", 1), world.create("bills", 1)
    world.put(order, 5)
    world.put(bill, 5)
    query = run(startingOffsets="earliest", **before)
    end = query.latest(query.driver.initial_offset())
    assert offsets(end) == {order: 5, bill: 5}
    world.put(order, 2)
    if is_gone:
        world.delete("bills")  # No loss of this query's any more.
    else:
        world.put(bill, 2)
    narrow = run(**after)
    for count in (7, 9):
        end = narrow.latest(end)
        assert offsets(end) == {order: count, bill: 5}
        world.put(order, 2)
        narrow.driver._discovery._stop.wait(0.25)  # type: ignore[union-attr]
    assert caplog.text.count("no longer selected") == 1
    if is_gone:
        return
    # Narrow runs that end by themselves leave it unread as well, and a wide one reads it again.
    last = run(**after)
    last.driver.prepare_available_now()
    end = last.latest(end)
    assert offsets(end) == {order: 11, bill: 5}
    assert offsets(run(**before).latest(end)) == {order: 11, bill: 7}


def test_dead_letters_that_do_not_exist_yet_are_waited_for(world: FakeWorld, run: Run) -> None:
    query = run(deadLettersOf="g", startingOffsets="earliest")
    start = query.driver.initial_offset()
    assert offsets(start) == {}
    assert query.latest(start) == start
    (queue,) = world.create("%DLQ%g", 1)
    world.put(queue, 3)
    end = query.until(start, lambda end: bool(offsets(end)))
    assert offsets(query.latest(end)) == {queue: 3}
