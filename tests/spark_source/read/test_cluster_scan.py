"""Scans of a cluster whose brokers do not answer, or not everything."""

from __future__ import annotations

import pickle

import pytest

from pyspark_rocketmq.errors import ClusterUnreachableError
from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.read.cluster_scan import find_first_store_times, first_scan
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Bounds, QueueId, StoredMessage
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus
from rocketmq_wire.requests.offsets import GetEarliestStoreTime
from support.fake_clock import FakeClock
from support.fake_cluster import FakeCluster, FakeWorld
from support.records import BORN_HOST, STORE_HOST, lay_out
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue

QUEUE = QueueId("orders", "broker-a", 0)
BORN_MS = 1_700_000_000_000


def record(offset: int) -> bytes:
    return lay_out(
        StoredMessage(
            QUEUE.topic, b"body", {}, 0, QUEUE.index, offset, offset * 100, 0,
            BORN_MS, BORN_HOST, BORN_MS + offset, STORE_HOST, 0, 0, 0, 0,
        )
    )  # fmt: skip


@pytest.mark.parametrize(("first", "first_store_times"), [(0, {QUEUE: BORN_MS}), (1, {})])
def test_without_a_first_store_time_the_first_message_is_pulled(
    first: int, first_store_times: dict[QueueId, int]
) -> None:
    """A proxy knows no code 32; a broker passes over a message whose file it has just deleted."""

    def script(request: Request[Reply]) -> Reply | None:
        if not isinstance(request, PullMessages):
            return None
        return PullReply(PullStatus.FOUND, first + 1, 0, 10, (record(first),))

    with ScriptedBroker({QUEUE: SimulatedQueue(0, 10)}) as broker:
        broker.script = script
        with open_cluster(ConnectionSettings((broker.address,))) as cluster:
            assert find_first_store_times(cluster, {QUEUE: Bounds(0, 10)}) == first_store_times
        assert any(isinstance(asked, GetEarliestStoreTime) for asked in broker.requests)


# --- before a read, while the cluster does not answer -------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def world() -> FakeWorld:
    world = FakeWorld()
    world.create("orders", 1)
    world.create("orders", 1, "broker-b")
    return world


def options(**others: str) -> ReadOptions:
    raw = {"nameServer": "h:1;h:2", "subscribe": "orders", **others}
    return read_options(raw)


def scan(world: FakeWorld, clock: FakeClock, *, is_whole: bool = True, **others: str) -> object:
    cluster = FakeCluster(world, clock.clock)
    return first_scan(cluster, options(**others), is_whole=is_whole)  # type: ignore[arg-type]


def test_planning_gives_up_after_the_connect_time_out_and_tells_what_was_tried(
    world: FakeWorld, clock: FakeClock
) -> None:
    world.name_server_away = True
    with pytest.raises(ClusterUnreachableError) as failure:
        scan(world, clock, connectTimeoutMs="2500")
    assert str(failure.value) == (
        "[ROCKETMQ_CONNECTION.UNREACHABLE] nameServer=h:1;h:2: name-server:1 does not answer "
        "(away). Asked 4 times in 2.5 s. Check the address, and that the name server and the "
        "brokers are up; where brokers advertise an address that is not reachable from here, give "
        "addressMap. Raise connectTimeoutMs to wait longer."
    )
    assert clock.sleeps == [1_000, 1_000, 500]
    assert str(pickle.loads(pickle.dumps(failure.value))) == str(failure.value)


def test_a_new_read_needs_every_broker_and_a_restart_does_not(
    world: FakeWorld, clock: FakeClock
) -> None:
    world.brokers_away.add("broker-b")
    with pytest.raises(ClusterUnreachableError, match="broker-b:1 does not answer"):
        scan(world, clock)
    clock.sleeps.clear()
    scan(world, clock, is_whole=False)
    assert clock.sleeps == []


def test_planning_resumes_when_the_cluster_comes_back(
    world: FakeWorld, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    world.name_server_away = True

    def come_back() -> None:
        world.name_server_away = len(clock.sleeps) < 2

    clock.on_sleep = come_back
    scan(world, clock)
    assert len(clock.sleeps) == 2
    began, ended = caplog.messages
    assert began.startswith("asking again for up to 3 s: [ROCKETMQ_CONNECTION.REFUSED]")
    assert ended == "answered after 2.0 s, resuming"
    caplog.clear()
    scan(world, clock)
    assert caplog.messages == []
