"""The stream driver against a cluster in memory: what Spark would ask, and what it gets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyspark_rocketmq import lookout
from pyspark_rocketmq.errors import (
    DataLossError,
    DiscoveryDiedError,
    GroupInUseError,
    Loss,
    OptionError,
)
from pyspark_rocketmq.offsets import SourceOffset
from pyspark_rocketmq.options import parse_options
from pyspark_rocketmq.stream_driver import Ports, StreamDriver
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport import RangeChunk, ReadSpec
from rocketmq_wire.errors import ConnectError, TopicNotFoundError
from rocketmq_wire.model import QueueId
from support.fake_cluster import FakeCluster, FakeWatch, FakeWorld


class Query:
    """One run of a query: a driver, asked as Spark asks it."""

    def __init__(self, world: FakeWorld, **options: str) -> None:
        self.now_ms = 1_000_000
        self.watches: list[FakeWatch] = []
        self.sleeps: list[int] = []
        raw = {"nameServer": "h:1", "subscribe": "orders", "discoveryIntervalMs": "100", **options}
        raw = {name.replace("__", "."): text for name, text in raw.items()}
        if "subscribePattern" in options or "assign" in options:
            del raw["subscribe"]

        def watch(
            settings: ConnectionSettings, queues: tuple[QueueId, ...], *, hold_ms: int
        ) -> FakeWatch:
            self.watches.append(world.open_watch(settings, queues, hold_ms=hold_ms))
            return self.watches[-1]

        ports = Ports(
            world.open_cluster,  # type: ignore[arg-type]
            watch,  # type: ignore[arg-type]
            lambda: self.now_ms,
            self.sleep_ms,
        )
        self.driver = StreamDriver(parse_options(raw), ports)

    def sleep_ms(self, ms: int) -> None:
        self.sleeps.append(ms)
        self.now_ms += ms

    def latest(self, start: dict[str, Any], *, is_unlimited: bool = False) -> dict[str, Any]:
        # As Spark does it: every offset goes through text.
        end = self.driver.latest_offset(json.loads(json.dumps(start)), is_unlimited=is_unlimited)
        return dict(json.loads(json.dumps(end)))

    def until(self, start: dict[str, Any], reached: Callable[[dict[str, Any]], bool]) -> Any:
        """Ask as a running query does until discovery has come round."""
        for _ in range(200):
            end = self.latest(start)
            if reached(end):
                return end
            self.driver._lookout._stop.wait(0.02)  # type: ignore[union-attr]
        raise AssertionError(f"not reached from {start}")


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


@pytest.fixture
def run(world: FakeWorld) -> Iterator[Callable[..., Query]]:
    queries: list[Query] = []

    def start(**options: str) -> Query:
        queries.append(Query(world, **options))
        return queries[-1]

    yield start
    for query in queries:
        query.driver.close()


def offsets(value: dict[str, Any]) -> dict[QueueId, int]:
    return dict(SourceOffset.from_json(value).offsets)


Run = Callable[..., Query]


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
    world.put(queue, 5)
    query = run(startingOffsets="earliest", minOffsetsPerTrigger="6", maxTriggerDelay="10s")
    start = query.driver.initial_offset()
    assert query.latest(start) == start
    query.now_ms += 10_000
    end = query.latest(start)
    assert offsets(end) == {queue: 5}
    world.put(queue, 3)
    assert query.latest(end) == end
    world.put(queue, 3)
    assert offsets(query.latest(end)) == {queue: 11}


def test_an_unmet_minimum_asks_for_the_ends_ten_times_a_second(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    query = run(startingOffsets="earliest", minOffsetsPerTrigger="500", maxTriggerDelay="10s")
    start = query.driver.initial_offset()
    query.latest(start)
    (watch,) = query.watches
    before, began_ms = watch.questions, query.now_ms
    while query.now_ms < began_ms + 1_000:
        query.now_ms += 10  # Spark's pause between two polls.
        world.put(queue, 1)
        assert query.latest(start) == start
    # One before each pause, and one behind it.
    assert watch.questions - before <= 20
    assert set(query.sleeps) == {100}
    # The last pause ends with the delay, and no busy source of the same query is kept waiting.
    query.now_ms = began_ms + 9_960
    query.driver._last_return_ms = query.now_ms - 10
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


def test_assigned_queues_are_all_that_is_read(world: FakeWorld, run: Run) -> None:
    queues = world.create("orders", 3)
    for queue in queues:
        world.put(queue, 5)
    query = run(assign='{"orders":[1,7]}', startingOffsets="earliest")
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

    monkeypatch.setattr(lookout, "take_survey", broken)
    with pytest.raises(DiscoveryDiedError, match=r"ValueError.*a bug") as failure:
        query.until(start, lambda _: False)
    assert isinstance(failure.value.__cause__, ValueError)


# --- starting positions -----------------------------------------------------------------------


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


# --- group progress ---------------------------------------------------------------------------


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


def test_progress_goes_back_with_a_place_that_was_corrected(world: FakeWorld, run: Run) -> None:
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


def test_the_end_of_available_now_is_committed_when_the_run_says_it_is_over(
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
def test_nothing_is_committed_unasked(world: FakeWorld, run: Run, mode: str) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    query = run(group="g", startingOffsets="earliest", commitOffsets=mode)
    end = query.latest(query.driver.initial_offset())
    query.latest(end)
    query.driver.confirm(SourceOffset.from_json(end))
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
    assert "progress is not committed yet" in caplog.text
    world.brokers_away.clear()
    assert committer.flush(5_000)
    assert world.committed == {("g", a): 5, ("g", b): 5}


# --- outages and losses -----------------------------------------------------------------------


def test_a_queue_stays_while_its_broker_is_missing_and_the_others_go_on(
    world: FakeWorld, run: Run
) -> None:
    a, b = world.create("orders", 1) + world.create("orders", 1, "broker-b")
    world.put(a, 5)
    world.put(b, 5)
    query = run(startingOffsets="earliest")
    start = query.latest(query.driver.initial_offset())
    gone = world.queues.pop(b)
    world.brokers_away.add("broker-b")
    world.put(a, 1)
    end = query.latest(start)
    assert offsets(end) == {a: 6, b: 5}
    # A restart meanwhile keeps it as well.
    again = run(startingOffsets="earliest")
    world.put(a, 1)
    end = again.latest(end)
    assert offsets(end) == {a: 7, b: 5}
    world.queues[b] = gone
    world.brokers_away.clear()
    world.put(b, 2)
    assert offsets(again.latest(end)) == {a: 7, b: 7}


@pytest.mark.parametrize("fails", [True, False])
def test_expiry_is_found_at_a_restart(world: FakeWorld, run: Run, fails: bool) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 10)
    start = SourceOffset({queue: 3}).to_json()
    world.expire(queue, 8)
    query = run(failOnDataLoss=str(fails).lower())
    if fails:
        with pytest.raises(DataLossError, match=r"OFFSET_EXPIRED\].*\[8,10\): 5 messages"):
            query.latest(start)
    else:
        end = query.latest(start)
        assert end["starts"] == {"orders": {"broker-a": {"0": 8}}}
        assert offsets(end) == {queue: 10}
        assert query.latest(end) == end


@pytest.mark.parametrize("fails", [True, False])
def test_truncation_is_found_while_running(world: FakeWorld, run: Run, fails: bool) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 10)
    query = run(startingOffsets="earliest", failOnDataLoss=str(fails).lower())
    end = query.latest(query.driver.initial_offset())
    world.truncate(queue, 6)
    if fails:
        with pytest.raises(DataLossError, match=r"TRUNCATED\].*requested=10 available=\[0,6\)"):
            query.latest(end)
        return
    end = query.latest(end)
    assert offsets(end) == {queue: 6}
    assert SourceOffset.from_json(end).starts == {queue: 6}
    world.put(queue, 3)
    end = query.latest(end)
    assert offsets(end) == {queue: 9}
    assert SourceOffset.from_json(end).starts == {}


def test_a_lagging_replica_is_no_truncation_before_the_outage_is_over(
    world: FakeWorld, run: Run
) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 10)
    query = run(startingOffsets="earliest", failOnDataLoss="false", retry__outageMs="30s")
    end = query.latest(query.driver.initial_offset())
    behind = world.queues[queue].stored[6:]
    world.truncate(queue, 6)
    world.masters_away = True
    for _ in range(29):
        query.now_ms += 1_000
        assert query.latest(end) == end
    # The master comes back with what it had, and one more: nothing is read twice.
    world.queues[queue].stored += behind
    world.masters_away = False
    world.put(queue, 1)
    end = query.latest(end)
    assert (offsets(end), SourceOffset.from_json(end).starts) == ({queue: 11}, {})
    world.truncate(queue, 6)
    world.masters_away = True
    query.now_ms += 1_000
    assert query.latest(end) == end
    query.now_ms += 30_000
    assert offsets(query.latest(end)) == {queue: 6}


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_created_anew_and_refilled_is_found_at_a_restart(
    world: FakeWorld, run: Run, fails: bool
) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    query = run(startingOffsets="earliest")
    end = query.latest(query.driver.initial_offset())
    world.delete("orders")
    world.create("orders", 1)
    world.put(queue, 20)
    again = run(failOnDataLoss=str(fails).lower())
    if fails:
        with pytest.raises(DataLossError, match=r"TOPIC_RECREATED\].*requested=5"):
            again.latest(end)
        return
    end = again.latest(end)
    assert SourceOffset.from_json(end).starts == {queue: 0}
    assert offsets(end) == {queue: 20}
    assert run().latest(end) == end


def test_a_deleted_topic_is_told_from_a_missing_broker(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    world.create("bills", 1)
    world.put(queue, 5)
    start = SourceOffset({queue: 3}).to_json()
    world.delete("orders")
    world.brokers_away.add("broker-a")
    assert run().latest(start) == start
    world.brokers_away.clear()
    with pytest.raises(DataLossError) as failure:
        run().latest(start)
    assert failure.value.loss is Loss.TOPIC_DELETED
    assert run(failOnDataLoss="false").latest(start) == start


def test_a_deletion_while_running_is_reported_with_what_was_unread(
    world: FakeWorld, run: Run
) -> None:
    (queue,) = world.create("orders", 1)
    world.create("bills", 1)
    world.put(queue, 50)
    query = run(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    start = query.latest(query.driver.initial_offset())
    world.delete("orders")
    with pytest.raises(DataLossError, match=r"TOPIC_DELETED\].*40 messages are gone"):
        query.until(start, lambda _: False)


def test_a_removed_queue_is_a_loss_only_if_it_was_not_read(world: FakeWorld, run: Run) -> None:
    a, b = world.create("orders", 2)
    world.put(b, 5)
    query = run(startingOffsets="earliest", maxOffsetsPerTrigger="2")
    start = query.latest(query.driver.initial_offset())
    del world.queues[b]
    with pytest.raises(DataLossError, match=r"QUEUE_REMOVED\].*3 messages are gone"):
        query.until(start, lambda _: False)
    world.queues[b] = type(world.queues[a])()
    world.put(b, 5)
    query = run(startingOffsets="earliest")
    start = query.latest(query.driver.initial_offset())
    del world.queues[b]
    world.put(a, 1)
    assert offsets(query.until(start, lambda end: offsets(end)[a] == 1)) == {a: 1, b: 5}


def test_a_broker_that_is_away_is_told_once_and_so_is_its_return(
    world: FakeWorld, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = world.create("orders", 1) + world.create("orders", 1, "broker-b")
    query = run(startingOffsets="earliest", retry__outageMs="30s")
    start = query.latest(query.driver.initial_offset())
    world.brokers_away.add("broker-b")
    caplog.clear()
    for count in range(1, 4):
        world.put(a, 1)
        start = query.latest(start)
        assert offsets(start) == {a: count, b: 0}
    (line,) = caplog.messages
    assert line.startswith("broker-b cannot be asked")
    assert "up to 30 s (retry.outageMs)" in line
    world.brokers_away.clear()
    query.latest(start)
    assert caplog.messages[1:] == ["broker-b answers again"]


def test_an_unreachable_name_server_does_not_stop_a_running_query(
    world: FakeWorld, run: Run
) -> None:
    (queue,) = world.create("orders", 1)
    query = run(startingOffsets="earliest")
    start = query.driver.initial_offset()
    query.latest(start)
    world.name_server_away = True
    world.put(queue, 2)
    assert offsets(query.latest(start)) == {queue: 2}
