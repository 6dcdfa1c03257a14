"""Masters, their replicas, and who is asked for what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.pull import PullConsumer
from rocketmq_client.download.contract import ReadLimits, ReadSpec
from rocketmq_client.routing import (
    MASTER_LOOKUP_INTERVAL_MS,
    BrokerDirectory,
    ReplicaSelection,
    is_failure,
    is_useful,
)
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.tcp.transport import TcpTransport
from rocketmq_wire.errors import BrokerError, ConnectError, RocketMQError, broker_error, raise_first
from rocketmq_wire.model import BrokerAddresses, OffsetRange, QueueId, Subscription
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.groups import (
    ClientsReply,
    Heartbeat,
    ListGroupClients,
    UnregisterClient,
)
from rocketmq_wire.requests.messages import PullMessages, PullReplies, PullReply, PullStatus
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue, offsets_in

QUEUE = QueueId("orders", "broker-a", 0)
END = 3_000
LIMITS = ReadLimits()


def queue_that_suggests(broker: ScriptedBroker, broker_id: int) -> None:
    """Every answer to a pull names the broker that should be asked next."""

    def script(request: Request[Reply]) -> Reply | BrokerError | None:
        if not isinstance(request, PullMessages):
            return None
        held = broker.queues[request.queue]
        reply = held.pull(request.start, request.count_max, request.bytes_max or 1 << 30)
        return replace(reply, suggested_broker_id=broker_id)

    broker.script = script


@pytest.fixture
def replica() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({QUEUE: SimulatedQueue(0, END, count_cap=100)}) as broker:
        yield broker


@pytest.fixture
def master(replica: ScriptedBroker) -> Iterator[ScriptedBroker]:
    with ScriptedBroker({QUEUE: SimulatedQueue(0, END, count_cap=100)}) as broker:
        both = {0: broker.address, 1: replica.address}
        broker.others = (BrokerAddresses("broker-a", "DefaultCluster", both),)
        yield broker


def read(master: ScriptedBroker, limits: ReadLimits = LIMITS) -> list[int]:
    transport = TcpTransport(ConnectionSettings((master.address,)))
    wanted = OffsetRange(QUEUE, 0, END)
    chunks = list(transport.read_ranges([wanted], ReadSpec("readers", limits=limits)))
    transport.close()
    return [
        offset
        for chunk in chunks
        for offset in offsets_in(chunk.body)
        if chunk.start <= offset < chunk.end
    ]


def test_pulls_go_to_the_replica_that_the_master_suggests(
    master: ScriptedBroker, replica: ScriptedBroker
) -> None:
    queue_that_suggests(master, 1)
    queue_that_suggests(replica, 1)
    assert read(master) == list(range(END))
    assert replica.pulls()


def test_pulls_return_to_the_master_when_the_replica_says_so(
    master: ScriptedBroker, replica: ScriptedBroker
) -> None:
    queue_that_suggests(master, 0)
    queue_that_suggests(replica, 0)
    assert read(master) == list(range(END))
    assert not replica.pulls()


def test_the_master_is_asked_for_messages_that_a_replica_lacks(
    master: ScriptedBroker, replica: ScriptedBroker
) -> None:
    replica.queues[QUEUE].end = 500
    queue_that_suggests(master, 1)
    queue_that_suggests(replica, 1)
    assert read(master) == list(range(END))
    assert replica.pulls()


def test_a_suggested_replica_that_is_down_costs_nothing_but_a_try(
    master: ScriptedBroker, replica: ScriptedBroker
) -> None:
    replica.stop()
    queue_that_suggests(master, 1)
    assert read(master) == list(range(END))


def test_a_suggested_replica_that_does_not_answer_is_asked_once(
    master: ScriptedBroker, replica: ScriptedBroker
) -> None:
    replica.script = lambda _: replica.SILENCE
    queue_that_suggests(master, 1)
    assert read(master, ReadLimits(count_per_pull=100, pull_timeout_ms=600)) == list(range(END))
    assert 0 < len(replica.pulls()) <= ReadLimits().pulls_in_flight


def test_a_suggested_replica_that_refuses_is_asked_once(
    master: ScriptedBroker, replica: ScriptedBroker
) -> None:
    replica.script = lambda _: broker_error(2, "[REJECTREQUEST] slave read is disabled")
    queue_that_suggests(master, 1)
    assert read(master) == list(range(END))
    assert 0 < len(replica.pulls()) <= ReadLimits().pulls_in_flight


def test_a_replica_that_failed_is_tried_again_after_a_pause_that_grows() -> None:
    selection = ReplicaSelection()
    assert not selection.is_shunned("s:1", 0)
    now_ms = 1_000
    for pause_ms in (30_000, 60_000, 120_000, 240_000, 480_000, 480_000):
        selection.shun("s:1", now_ms)
        # All its requests in flight fail together.
        selection.shun("s:1", now_ms + 5)
        assert selection.is_shunned("s:1", now_ms + pause_ms - 1)
        assert not selection.is_shunned("s:2", now_ms)
        now_ms += pause_ms
        assert not selection.is_shunned("s:1", now_ms)
    selection.trust("s:1")
    selection.shun("s:1", now_ms)
    assert not selection.is_shunned("s:1", now_ms + 30_000)


def test_a_suggested_replica_without_an_address_is_not_asked(
    master: ScriptedBroker, replica: ScriptedBroker
) -> None:
    queue_that_suggests(master, 7)
    assert read(master) == list(range(END))
    assert not replica.pulls()


def test_commits_wait_for_the_master(master: ScriptedBroker, replica: ScriptedBroker) -> None:
    both = master.others
    master.others = (BrokerAddresses("broker-a", "DefaultCluster", {1: replica.address}),)
    settings = ConnectionSettings((master.address,), request_timeout_ms=300, retry_delay_ms=10)
    with open_cluster(settings) as cluster:
        assert raise_first(cluster.bounds([QUEUE]))[QUEUE].is_current is False
        (error,) = cluster.commit("readers", {QUEUE: 5}).values()
        assert isinstance(error, ConnectError)
        assert "master is unavailable" in str(error)
        (answer,) = cluster.committed_offsets("readers", [QUEUE]).values()
        assert isinstance(answer, ConnectError)
        master.others = both
        assert cluster.commit("readers", {QUEUE: 5}) == {QUEUE: None}
    assert master.committed == {("readers", QUEUE): 5}
    assert replica.committed == {}


def test_the_route_of_a_broker_without_a_master_is_asked_for_again() -> None:
    directory = BrokerDirectory({})
    directory.learn([BrokerAddresses("a", "c", {1: "s:1"})], 1_000)
    assert directory.is_settled("a", 1_000 + MASTER_LOOKUP_INTERVAL_MS - 1)
    assert not directory.is_settled("a", 1_000 + MASTER_LOOKUP_INTERVAL_MS)
    directory.learn([BrokerAddresses("a", "c", {0: "m:1", 1: "s:1"})], 9_000)
    assert directory.is_settled("a", 90_000)
    assert (directory.address("a"), directory.replica("a", 1)) == ("m:1", "s:1")


FOUND = PullReply(PullStatus.FOUND, 32, 0, 99, (b"x",))
ILLEGAL = PullReply(PullStatus.OFFSET_ILLEGAL, 0, 0, 9)
BUSY = broker_error(2, "[TIMEOUT_CLEAN_QUEUE]")


@pytest.mark.parametrize(
    ("answers", "useful", "failure"),
    [
        ((FOUND, FOUND), True, False),
        ((FOUND, ILLEGAL), False, False),
        ((FOUND, BUSY), False, False),
        ((BUSY, BUSY), False, True),
    ],
)
def test_answers_of_a_replica_to_pulls_sent_as_one(
    answers: tuple[PullReply | RocketMQError, ...], useful: bool, failure: bool
) -> None:
    pull = PullMessages("g", QUEUE, 1_000, 32, times=2)
    assert is_useful(pull, PullReplies(answers)) is useful
    assert is_failure(PullReplies(answers)) is failure


def test_a_consumer_s_heartbeats_and_its_leave_go_to_slaves_too(
    master: ScriptedBroker, replica: ScriptedBroker
) -> None:
    def script(request: Request[Reply]) -> Reply | BrokerError | None:
        if isinstance(request, ListGroupClients):
            return ClientsReply(())
        return Done() if isinstance(request, Heartbeat | UnregisterClient) else None

    master.script = replica.script = script
    settings = ConsumerSettings("g", {"orders": Subscription("a")})
    connection = ConnectionSettings(name_servers=(master.address,))
    with PullConsumer(connection, settings):
        pass
    for broker in (master, replica):
        kinds = [type(one) for one in broker.requests]
        assert kinds.count(Heartbeat) >= 1
        assert kinds.count(UnregisterClient) == 1
    sent = next(one for one in replica.requests if isinstance(one, Heartbeat))
    assert sent.consumers[0].subscriptions[0][:3] == ("orders", "a", "TAG")
