"""How long a read's planning, and a task, wait for a cluster that is away; a fake clock counts."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import cast

import pytest

from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.outage_retry import ClusterUnreachableError, Outage, WallClock
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.read.cluster_scan import first_scan
from pyspark_rocketmq.stream.replayed_batch import drop_recreated_queues
from rocketmq_client.cluster import Cluster
from rocketmq_wire.errors import BrokerBusyError, ConnectError, NotAuthorizedError
from rocketmq_wire.model import OffsetRange
from support.fake_cluster import FakeCluster, FakeWorld


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.sleeps: list[int] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def sleep_ms(self, ms: int) -> None:
        self.sleeps.append(ms)
        self.now_ms += ms
        self.on_sleep()

    @property
    def wall(self) -> WallClock:
        return WallClock(lambda: self.now_ms, self.sleep_ms)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world() -> FakeWorld:
    world = FakeWorld()
    world.create("orders", 1)
    world.create("orders", 1, "broker-b")
    return world


def options(**others: str) -> ReadOptions:
    raw = {"nameServer": "h:1;h:2", "subscribe": "orders", **others}
    return read_options(raw)


def survey(world: FakeWorld, clock: Clock, *, is_whole: bool = True, **others: str) -> object:
    cluster = FakeCluster(world)
    return first_scan(cluster, options(**others), is_whole=is_whole, clock=clock.wall)  # type: ignore[arg-type]


def test_planning_gives_up_after_the_connect_time_out_and_tells_what_was_tried(
    world: FakeWorld, clock: Clock
) -> None:
    world.name_server_away = True
    with pytest.raises(ClusterUnreachableError) as failure:
        survey(world, clock, connectTimeoutMs="2500")
    assert str(failure.value) == (
        "[ROCKETMQ_CONNECTION.UNREACHABLE] nameServer=h:1;h:2: name-server:1 does not answer "
        "(away). Asked 4 times in 2.5 s. Check the address, and that the name server and the "
        "brokers are up; where brokers advertise an address that is not reachable from here, give "
        "addressMap. Raise connectTimeoutMs to wait longer."
    )
    assert clock.sleeps == [1_000, 1_000, 500]
    assert str(pickle.loads(pickle.dumps(failure.value))) == str(failure.value)


def test_a_new_read_needs_every_broker_and_a_restart_does_not(
    world: FakeWorld, clock: Clock
) -> None:
    world.brokers_away.add("broker-b")
    with pytest.raises(ClusterUnreachableError, match="broker-b:1 does not answer"):
        survey(world, clock)
    clock.sleeps.clear()
    survey(world, clock, is_whole=False)
    assert clock.sleeps == []


def test_planning_goes_on_when_the_cluster_comes_back(
    world: FakeWorld, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    world.name_server_away = True

    def come_back() -> None:
        world.name_server_away = len(clock.sleeps) < 2

    clock.on_sleep = come_back
    survey(world, clock)
    assert len(clock.sleeps) == 2
    began, ended = caplog.messages
    assert began.startswith("asking again for up to 3 s: [ROCKETMQ_CONNECTION.REFUSED]")
    assert ended == "answered after 2.0 s, going on"
    caplog.clear()
    survey(world, clock)
    assert caplog.messages == []


def test_what_time_does_not_mend_is_not_waited_for(clock: Clock) -> None:
    outage = Outage(60_000, 1_000, clock.wall)
    assert not outage.endure(NotAuthorizedError(16, "no"))
    assert clock.sleeps == []


def test_an_outage_ends_with_its_patience(clock: Clock) -> None:
    outage = Outage(2_300, 5_000, clock.wall)
    errors = [ConnectError("h:1", "away"), BrokerBusyError(2, "busy")] * 3
    assert [outage.endure(error) for error in errors[:4]] == [True, True, True, False]
    assert clock.sleeps == [1_000, 1_000, 300]
    assert (outage.tries, outage.waited_ms) == (4, 2_300)


def test_a_broker_that_is_away_when_a_logged_batch_is_read_again_is_told(
    world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = sorted(world.queues)
    for queue in (a, b):
        world.put(queue, 10)
    first_store_times = {queue: world.queues[queue].stored[0][0] for queue in (a, b)}
    planned = SourceOffset({a: 10, b: 10}, first_store_times=first_store_times)
    ranges = [OffsetRange(a, 0, 10), OffsetRange(b, 0, 10)]
    world.brokers_away.add(b.broker)
    cluster = cast("Cluster", FakeCluster(world))
    assert drop_recreated_queues(cluster, options(), ranges, planned) == ranges
    (line,) = [line for line in caplog.messages if line.startswith("cannot tell")]
    assert str(b) in line
