"""What a stream's driver commits as its group's progress, and when."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import (
    GroupInUseError,
)
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from support.driver_queries import Run, offsets
from support.fake_cluster import FakeWorld


def test_each_durable_end_is_committed_and_the_initial_offset_never(
    world: FakeWorld, run: Run
) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    world.committed["g", queue] = 99
    query = run(group="g", startingOffsets="earliest")
    start = query.driver.initial_offset()
    end = query.latest(start)
    assert query.driver._committer is not None
    assert query.driver._committer.flush(2_000)
    assert world.commit_log == []
    query.latest(end)
    assert query.driver._committer.flush(2_000)
    assert world.commit_log == [{queue: 5}]
    assert world.committed["g", queue] == 5
    for _ in range(3):
        query.latest(end)
    assert query.driver._committer.flush(2_000)
    assert world.commit_log == [{queue: 5}]


def test_the_committed_offset_goes_back_with_a_corrected_offset(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 10)
    query = run(group="g", startingOffsets="earliest", failOnDataLoss="false")
    end = query.latest(query.driver.initial_offset())
    committer = query.driver._committer
    assert committer is not None
    world.truncate(queue, 6)
    corrected = query.latest(end)  # Commits 10.
    assert committer.flush(2_000)
    assert world.committed == {("g", queue): 10}
    assert offsets(corrected) == {queue: 6}
    query.latest(corrected)
    assert committer.flush(2_000)
    assert world.committed == {("g", queue): 6}


def test_finding_a_queue_is_not_yet_reading(world: FakeWorld, run: Run) -> None:
    (old,) = world.create("orders", 1)
    world.put(old, 5)
    query = run(group="g")
    start = query.driver.initial_offset()
    world.create("orders", 2)
    found = query.until(start, lambda end: len(offsets(end)) == 2)
    assert SourceOffset.from_json(found).is_initial
    world.put(old, 1)
    assert not SourceOffset.from_json(query.latest(found)).is_initial


def test_the_end_of_available_now_is_committed_when_the_run_ends(
    world: FakeWorld, run: Run
) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    query = run(group="g", startingOffsets="earliest")
    query.driver.prepare_available_now()
    end = query.latest(query.driver.initial_offset())
    assert query.latest(end) == end
    assert world.committed == {("g", queue): 5}


@pytest.mark.parametrize("mode", ["false", "confirmed"])
def test_nothing_is_committed_unless_the_option_says_so(
    world: FakeWorld, run: Run, mode: str
) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    query = run(group="g", startingOffsets="earliest", commitOffsets=mode)
    end = query.latest(query.driver.initial_offset())
    query.latest(end)
    query.driver.confirm(end)
    query.driver.close()
    assert world.committed == ({("g", queue): 5} if mode == "confirmed" else {})


def test_a_group_with_live_members_is_refused(world: FakeWorld, run: Run) -> None:
    world.create("orders", 1)
    world.live_members["g"] = ("10.0.0.1@a", "10.0.0.2@b")
    query = run(group="g")
    with pytest.raises(GroupInUseError, match=r"\[ROCKETMQ_GROUP\.IN_USE\] group=g has 2 live"):
        query.latest(query.driver.initial_offset())
    quiet = run(group="g", commitOffsets="false")
    quiet.latest(quiet.driver.initial_offset())


def test_a_failing_commit_does_not_fail_the_query_and_is_made_good(
    world: FakeWorld, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = world.create("orders", 1) + world.create("orders", 1, "broker-b")
    world.put(a, 5)
    world.put(b, 5)
    query = run(group="g", startingOffsets="earliest")
    end = query.latest(query.driver.initial_offset())
    world.brokers_away.add("broker-b")
    query.latest(end)
    committer = query.driver._committer
    assert committer is not None
    assert not committer.flush(300)
    assert world.committed == {("g", a): 5}
    assert "cannot commit offsets now" in caplog.text
    world.brokers_away.clear()
    assert committer.flush(5_000)
    assert world.committed == {("g", a): 5, ("g", b): 5}
