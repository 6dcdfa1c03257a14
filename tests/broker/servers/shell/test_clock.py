"""The broker's clock over steps of the wall clock, and what is measured by it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.servers.shell.clock import BrokerClock
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Message, QueueId, TopicConfig
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus, SendMessage
from rocketmq_wire.requests.pop import InitMode, PopMessages, PopStatus
from rocketmq_wire.requests.topics import CreateTopic
from support.remoting_peer import RemotingPeer

HOUR_MS = 3_600_000
QUEUE = QueueId("orders", "broker-a", 0)


@dataclass
class Times:
    wall_ms: int = 10 * HOUR_MS
    passed_ms: int = 500

    def clock(self, start_ms: int = 0) -> BrokerClock:
        return BrokerClock(
            start_ms,
            wall_ns=lambda: self.wall_ms * 1_000_000,
            monotonic_ns=lambda: self.passed_ms * 1_000_000,
        )

    def wait(self, ms: int) -> None:
        self.wall_ms += ms
        self.passed_ms += ms


def test_a_step_back_does_not_stop_the_clock_and_the_wall_clock_catches_up() -> None:
    times = Times()
    clock = times.clock()
    began_ms = clock.now_ms()
    times.wait(100)
    times.wall_ms -= HOUR_MS
    assert clock.now_ms() == began_ms + 100
    times.wait(2_000)
    assert (clock.now_ms(), clock.ahead_ms()) == (began_ms + 2_100, HOUR_MS)
    times.wall_ms += HOUR_MS
    times.wait(50)
    assert (clock.now_ms(), clock.ahead_ms()) == (began_ms + 2_150, 0)


def test_a_step_forward_is_followed_and_its_correction_is_a_step_back() -> None:
    times = Times()
    clock = times.clock()
    began_ms = clock.now_ms()
    times.wall_ms += HOUR_MS
    assert clock.now_ms() == began_ms + HOUR_MS
    times.wall_ms -= HOUR_MS
    times.wait(1_000)
    assert clock.now_ms() == began_ms + HOUR_MS + 1_000


def test_a_small_correction_is_waited_for() -> None:
    times = Times()
    clock = times.clock()
    began_ms = clock.now_ms()
    times.wall_ms -= 300
    assert clock.now_ms() == began_ms
    times.wait(200)
    assert clock.now_ms() == began_ms
    times.wait(200)
    assert clock.now_ms() == times.wall_ms == began_ms + 100


def test_a_store_with_later_times_begins_the_clock_there() -> None:
    times = Times()
    clock = times.clock(times.wall_ms + HOUR_MS)
    began_ms = clock.now_ms()
    assert began_ms == times.wall_ms + HOUR_MS
    times.wait(1_000)
    assert clock.now_ms() == began_ms + 1_000


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_delays_timers_and_held_pulls_outlive_a_step_of_the_wall_clock(
    monkeypatch: pytest.MonkeyPatch, step_ms: int
) -> None:
    steps_ms = [0]
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + sum(steps_ms) * 1_000_000)
    with Broker(BrokerConfig(flush="memory", grpc=False)) as broker:
        settings = ConnectionSettings((broker.name_server,))
        with open_cluster(settings) as cluster, Producer(cluster) as producer:
            cluster.create_topic(TopicConfig("orders", 1, 1))
            producer.send(Message("orders", b"first"), QUEUE)
            steps_ms.append(abs(step_ms))
            # The store has the later time now.
            producer.send(Message("orders", b"second"), QUEUE)
            steps_ms.append(step_ms - abs(step_ms))
            due_ms = time.time_ns() // 1_000_000 + 1_000
            producer.send(Message("orders", b"level", properties={"DELAY": "1"}), QUEUE)
            timed = {"TIMER_DELIVER_MS": str(due_ms)}
            producer.send(Message("orders", b"timer", properties=timed), QUEUE)
            began = time.monotonic()
            assert _ends_within(cluster, 4, began + 8)
            assert time.monotonic() - began >= 0.8, "one came early"
            pull = PullMessages("g", QUEUE, 4, 1, suspend_ms=700)
            reply = cluster.transport.call(pull, timeout_ms=6_000)
            assert isinstance(reply, PullReply)
            assert reply.status is PullStatus.NO_NEW_MESSAGE


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_a_popped_message_comes_again_after_a_step_of_the_wall_clock(
    monkeypatch: pytest.MonkeyPatch, step_ms: int
) -> None:
    steps_ms = [0]
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + sum(steps_ms) * 1_000_000)
    with (
        Broker(BrokerConfig(flush="memory", grpc=False)) as broker,
        RemotingPeer(broker.name_server) as peer,
    ):
        peer.call(CreateTopic(TopicConfig("orders", 1, 1)))
        peer.call(SendMessage("p", QUEUE, 1, b"job"))

        def pop(poll_ms: int) -> PopStatus:
            now_ms = time.time_ns() // 1_000_000
            wanted = PopMessages("g", QUEUE, 1, 1_500, poll_ms, now_ms, InitMode.MIN)
            return peer.call(wanted).status

        assert pop(0) is PopStatus.FOUND
        steps_ms.append(step_ms)
        began = time.monotonic()
        while pop(0) is not PopStatus.FOUND:
            assert time.monotonic() - began < 10
            time.sleep(0.05)


def _ends_within(cluster: Cluster, end: int, until: float) -> bool:
    while time.monotonic() < until:
        if cluster.bounds([QUEUE])[QUEUE].end == end:  # type: ignore[union-attr]
            return True
        time.sleep(0.05)
    return False
