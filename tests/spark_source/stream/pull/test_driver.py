"""A stream's driver plans micro-batches: what is there, limits, arrivals, and what is found."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pyspark_rocketmq.errors import (
    DiscoveryDiedError,
    OptionError,
)
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.stream.pull import driver as pull_driver
from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_wire.errors import ConnectError, TopicNotFoundError
from support.driver_queries import Run, offsets
from support.fake_cluster import FakeCluster, FakeWorld


def test_a_new_query_starts_at_the_end_and_remembers_where(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    query = run()
    initial = query.driver.initial_offset()
    world.put(queue, 3)
    assert query.driver.initial_offset() == initial
    assert offsets(initial) == {queue: 5}
    end = query.latest(initial)
    assert end["offsets"] == {"orders": {"broker-a": {"0": 8}}}
    assert end["starts"] == {"orders": {"broker-a": {"0": 5}}}


def test_nothing_new_is_the_identical_offset(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    query = run(startingOffsets="earliest")
    end = query.latest(query.driver.initial_offset())
    assert json.dumps(query.latest(end)) == json.dumps(end)
    assert json.dumps(query.latest(end)) == json.dumps(end)


def test_a_busy_query_is_never_kept_waiting_and_an_idle_one_waits_a_little(
    world: FakeWorld, run: Run
) -> None:
    world.create("orders", 1)
    query = run(startingOffsets="earliest")
    start = query.driver.initial_offset()
    query.now_ms += 500
    query.latest(start)
    assert query.watches[0].waits == []
    query.now_ms += 10
    query.latest(start)
    assert query.watches[0].waits == [100]
    query.now_ms += 200
    query.latest(start)
    assert query.watches[0].waits == [100]


def test_the_planning_path_asks_nothing_of_the_network_once_it_runs(
    world: FakeWorld, run: Run
) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    query = run(startingOffsets="earliest", discoveryIntervalMs="1h", suspendTimeoutMs="7s")
    end = query.latest(query.driver.initial_offset())
    assert world.hold_ms == 7_000
    calls = len(world.calls)
    for _ in range(3):
        world.put(queue, 5)
        end = query.latest(end)
        query.driver.report_latest()
    assert offsets(end) == {queue: 20}
    assert len(world.calls) == calls


def test_limits_are_shared_and_trigger_once_ignores_them(world: FakeWorld, run: Run) -> None:
    queues = world.create("orders", 3)
    for queue, count in zip(queues, (101, 11, 1), strict=True):
        world.put(queue, count)
    query = run(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    start = query.driver.initial_offset()
    first = query.latest(start)
    assert offsets(first) == dict(zip(queues, (8, 1, 1), strict=True))
    assert offsets(query.latest(first)) == dict(zip(queues, (17, 2, 1), strict=True))
    assert offsets(query.latest(first, is_unlimited=True)) == dict(
        zip(queues, (101, 11, 1), strict=True)
    )


def test_the_minimum_waits_no_longer_than_the_delay(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    query = run(startingOffsets="earliest", minOffsetsPerTrigger="6", maxTriggerDelay="10s")
    start = query.driver.initial_offset()
    assert query.latest(start) == start
    world.put(queue, 5)
    end = query.latest(start)
    assert offsets(end) == {queue: 5}, "the first batch does not wait"
    world.put(queue, 3)
    assert query.latest(end) == end
    world.put(queue, 3)
    end = query.latest(end)
    assert offsets(end) == {queue: 11}
    world.put(queue, 1)
    assert query.latest(end) == end
    query.now_ms += 10_000
    assert offsets(query.latest(end)) == {queue: 12}


def test_an_unmet_minimum_asks_for_the_ends_ten_times_a_second(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    query = run(startingOffsets="earliest", minOffsetsPerTrigger="500", maxTriggerDelay="10s")
    began_ms = query.now_ms
    start = query.latest(query.driver.initial_offset())
    (watch,) = query.watches
    before = watch.questions
    while query.now_ms < began_ms + 1_000:
        query.now_ms += 10  # Spark's pause between two polls.
        world.put(queue, 1)
        assert query.latest(start) == start
    # One before each pause, and one behind it.
    assert watch.questions - before <= 20
    assert set(query.sleeps) == {100}
    # The last pause ends with the delay, and no busy source of the same query is kept waiting.
    query.now_ms = began_ms + 9_960
    query.driver._admission._last_answer_ms = query.now_ms - 10
    assert offsets(query.latest(start))[queue] > 5
    assert query.sleeps[-1] <= 40
    count = len(query.sleeps)
    query.now_ms += 200
    query.latest(start)
    assert len(query.sleeps) == count


def test_bytes_are_estimated_from_sampled_messages(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 50)
    query = run(startingOffsets="earliest", maxBytesPerTrigger="1000")
    (end,) = offsets(query.latest(query.driver.initial_offset())).values()
    assert 5 <= end <= 10  # A record of this world has a little over 100 bytes.


def test_a_failing_sample_neither_fails_the_query_nor_lifts_the_limit(
    world: FakeWorld, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 50)
    asked: list[ReadSpec] = []

    def away(_self: object, _ranges: object, spec: ReadSpec) -> Iterator[RangeChunk]:
        asked.append(spec)
        raise ConnectError("broker-a:1", "away")

    query = run(startingOffsets="earliest", maxBytesPerTrigger="10240")
    start = query.driver.initial_offset()
    with monkeypatch.context() as patch:
        patch.setattr(FakeCluster, "read_ranges", away)
        end = query.latest(start)
        assert offsets(end) == {queue: 10}
        query.now_ms += 1_000
        assert offsets(query.latest(end)) == {queue: 20}
        assert len(asked) == 1, "not at every call"
    assert "cannot sample" in caplog.text
    limits = asked[0].limits
    assert max(limits.outage_ms, limits.pull_timeout_ms) <= 1_000
    query.now_ms += 5_000
    assert offsets(query.latest(start))[queue] > 20


def test_available_now_reads_what_was_there_in_several_batches(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 25)
    query = run(startingOffsets="earliest", maxOffsetsPerTrigger="10", minOffsetsPerTrigger="9")
    query.driver.prepare_available_now()
    start = query.driver.initial_offset()
    world.put(queue, 100)
    seen = []
    while (end := query.latest(start)) != start:
        seen.append(offsets(end)[queue])
        start = end
    assert seen == [10, 20, 25]


def test_available_now_from_the_latest_offset_ends_at_once(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 25)
    query = run()
    query.driver.prepare_available_now()
    world.put(queue, 5)
    start = query.driver.initial_offset()
    assert offsets(start) == {queue: 25}
    assert query.latest(start) == start


def test_new_queues_and_topics_are_found_and_read_from_their_start(
    world: FakeWorld, run: Run
) -> None:
    (old,) = world.create("orders", 1)
    world.put(old, 5)
    query = run(subscribePattern="orders.*")
    start = query.latest(query.driver.initial_offset())
    _, new = world.create("orders", 2)
    world.put(new, 4)
    (other,) = world.create("orders-eu", 1)
    world.put(other, 2)
    world.create("bills", 1)
    end = query.until(start, lambda end: len(offsets(end)) == 3)
    assert offsets(end) == {old: 5, new: 4, other: 2}
    assert SourceOffset.from_json(end).starts == {old: 5, new: 0, other: 0}


def test_a_topic_that_does_not_exist_is_reported_at_the_start(run: Run) -> None:
    with pytest.raises(TopicNotFoundError, match=r"\[ROCKETMQ_TOPIC_NOT_FOUND\].*orders"):
        run().driver.initial_offset()


def test_a_topic_whose_name_is_nearly_right_is_suggested(world: FakeWorld, run: Run) -> None:
    world.create("order", 1)
    with pytest.raises(TopicNotFoundError, match=r"orders\. Did you mean 'order'\? Create"):
        run().driver.initial_offset()


def test_assigned_queues_are_all_that_is_read(world: FakeWorld, run: Run) -> None:
    queues = world.create("orders", 3)
    for queue in queues:
        world.put(queue, 5)
    with pytest.raises(OptionError, match=r"UNKNOWN_QUEUE\].*queue=7"):
        run(assign='{"orders":[1,7]}').driver.initial_offset()
    query = run(assign='{"orders":[1]}', startingOffsets="earliest")
    start = query.driver.initial_offset()
    assert offsets(start) == {queues[1]: 0}
    assert offsets(query.latest(start)) == {queues[1]: 5}


def test_an_unexpected_end_of_the_discovery_fails_the_query(
    world: FakeWorld, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create("orders", 1)
    query = run()
    start = query.latest(query.driver.initial_offset())

    def broken(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(pull_driver, "scan_cluster", broken)
    expected = r"^\[ROCKETMQ_DISCOVERY\.DIED\] .*ValueError.*a bug"
    with pytest.raises(DiscoveryDiedError, match=expected) as failure:
        query.until(start, lambda _: False)
    assert isinstance(failure.value.__cause__, ValueError)
