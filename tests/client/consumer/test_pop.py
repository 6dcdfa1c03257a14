"""Pop consumers on a broker, over sockets: the simple one, and push consumers with `pop`."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest

from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.consumer.common.listener import ConsumeContext, ConsumeStatus
from rocketmq_client.consumer.common.messages import Popped, ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings, PopSettings
from rocketmq_client.consumer.pop import PopConsumer
from rocketmq_client.consumer.popping.consumption import PopConsumption, PopQueue
from rocketmq_client.consumer.popping.puller import PopPuller
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.records.handles import ReceiptHandle
from rocketmq_wire.requests.groups import ConsumeMode, PutGroup
from rocketmq_wire.requests.pop import PopMessages
from support.consuming import Collector, Topic, settings_of, until
from support.group_fakes import FakeInstance


@pytest.fixture
def invisible_ms() -> int:
    """An invisible time that is short, and long enough for the work of a test."""
    return 600


@pytest.fixture
def cluster(connection: ConnectionSettings) -> Iterator[Cluster]:
    with open_cluster(connection) as cluster:
        yield cluster


def consumer_of(cluster: Cluster, topic: Topic, **more: object) -> PopConsumer:
    return PopConsumer(cluster, f"g-{topic.name}", topic.name, **more)  # type: ignore[arg-type]


def received(consumer: PopConsumer, count: int, *, acks: bool = True) -> list[bytes]:
    """At least `count` messages, or all that arrive in time."""
    bodies: list[bytes] = []
    end = time.monotonic() + 40
    while len(bodies) < count and time.monotonic() < end:
        popped = consumer.receive(wait_ms=1_000)
        bodies += [one.message.body for one in popped]
        if acks:
            assert consumer.ack(popped) == []
    return bodies


def pop_mode(cluster: Cluster, topic: Topic, mode: ConsumeMode = ConsumeMode.POP) -> None:
    """Do the same as `mqadmin setConsumeMode`."""
    group = f"g-{topic.name}"
    cluster.ask_masters(PutGroup({"groupName": group}))
    cluster.set_consume_mode(group, topic.name, mode)


def test_an_acknowledged_message_is_delivered_once(
    cluster: Cluster, topic: Topic, invisible_ms: int
) -> None:
    bodies = topic.send(100)
    consumer = consumer_of(cluster, topic, invisible_ms=invisible_ms)
    assert Counter(received(consumer, 100)) == Counter(bodies)
    assert consumer.receive(wait_ms=2 * invisible_ms) == []


def test_an_unacknowledged_message_is_redelivered_with_its_attempts(
    cluster: Cluster, topic: Topic, invisible_ms: int
) -> None:
    topic.send(3)
    consumer = consumer_of(cluster, topic, invisible_ms=invisible_ms)
    first: list[Popped] = []
    while len(first) < 3:
        first += consumer.receive(wait_ms=5_000)
    kept = next(one for one in first if one.message.body == b"1")
    assert consumer.ack(one for one in first if one is not kept) == []
    again: list[Popped] = []

    def has_come_again() -> bool:
        again.extend(consumer.receive(wait_ms=1_000))
        return bool(again)

    until(has_come_again)
    assert [one.message.body for one in again] == [b"1"]
    assert again[0].message.reconsume_times == 1
    assert again[0].message.topic == topic.name
    assert again[0].message.properties["1ST_POP_TIME"] == str(kept.handle.pop_ms)
    assert consumer.ack(again) == []


def test_a_renewed_message_stays_invisible(
    cluster: Cluster, topic: Topic, invisible_ms: int
) -> None:
    topic.send(1)
    consumer = consumer_of(cluster, topic, invisible_ms=invisible_ms)
    (popped,) = consumer.receive(wait_ms=5_000)
    for _ in range(3):
        popped = consumer.change_invisible(popped, invisible_ms)
        assert consumer.receive(wait_ms=invisible_ms // 2) == []
    assert consumer.ack([popped]) == []
    assert consumer.receive(wait_ms=2 * invisible_ms) == []


def test_tags_are_compared_exactly(cluster: Cluster, topic: Topic) -> None:
    topic.send(4, tags="a", prefix="a")
    topic.send(4, tags="b", prefix="b")
    consumer = consumer_of(cluster, topic, subscription=Subscription("a"))
    assert sorted(received(consumer, 4)) == [b"a0", b"a1", b"a2", b"a3"]


def test_a_pop_waits_for_messages(cluster: Cluster, topic: Topic) -> None:
    consumer = consumer_of(cluster, topic)
    assert consumer.receive() == []
    threading.Timer(0.3, lambda: topic.send(1)).start()
    started = time.monotonic()
    popped = consumer.receive(wait_ms=10_000)
    assert [one.message.body for one in popped] == [b"0"]
    assert time.monotonic() - started < 9


def test_an_invalid_handle_cannot_be_renewed(
    cluster: Cluster, topic: Topic, invisible_ms: int
) -> None:
    topic.send(1)
    consumer = consumer_of(cluster, topic, invisible_ms=invisible_ms)
    (popped,) = consumer.receive(wait_ms=5_000)
    assert len(received(consumer, 1)) == 1
    with pytest.raises(BrokerError, match="void"):
        consumer.change_invisible(popped, 1_000)


def test_close_hands_back_unacknowledged_messages(cluster: Cluster, topic: Topic) -> None:
    bodies = topic.send(8)
    received_bodies: list[bytes] = []
    with consumer_of(cluster, topic, invisible_ms=300_000) as consumer:
        first = True
        while len(received_bodies) < 8:
            popped = consumer.receive(wait_ms=5_000)
            received_bodies += [one.message.body for one in popped]
            if first and popped:
                assert consumer.ack(popped[:1]) == []
                done, first = popped[0].message.body, False
    following = consumer_of(cluster, topic)
    assert sorted(received(following, 7)) == sorted({*bodies} - {done})


# --- push consumers ------------------------------------------------------------------------------


def test_a_push_consumer_pops_in_the_brokers_mode(cluster: Cluster, topic: Topic) -> None:
    pop_mode(cluster, topic)
    bodies = topic.send(200)
    listener = Collector()
    with PushConsumer(
        topic.connection, settings_of(topic, rebalance_ms=500), listener, pop=PopSettings()
    ) as consumer:
        listener.wait(200)
        assert [queue.index for queue in consumer.popped_queues] == [-1]
        assert not [queue for queue in consumer.queues if queue.topic == topic.name]
        rates = consumer.running_info().rates[topic.name]
        assert min(rates.pulled, rates.succeeded) > 0
    assert Counter(listener.bodies) == Counter(bodies)
    handles = [ReceiptHandle.parse(one.properties["POP_CK"]) for one in listener.messages]
    assert [one.offset for one in handles] == [one.queue_offset for one in listener.messages]
    assert {one.properties["1ST_POP_TIME"] for one in listener.messages} == {
        str(one.pop_ms) for one in handles
    }
    until(lambda: sum(at or 0 for at in topic.committed(f"g-{topic.name}").values()) == 200)


class EmptyingCollector(Collector):
    """Keeps nothing in the list that it was called with."""

    def __call__(self, messages: list[ReceivedMessage], context: ConsumeContext) -> Any:
        status = super().__call__(messages, context)
        messages.clear()
        return status


def test_what_a_listener_does_to_its_list_keeps_no_acknowledgement_back(
    cluster: Cluster, topic: Topic
) -> None:
    pop_mode(cluster, topic)
    topic.send(20)
    listener = EmptyingCollector()
    with PushConsumer(
        topic.connection, settings_of(topic, rebalance_ms=500), listener, pop=PopSettings()
    ):
        listener.wait(20)
    until(lambda: sum(at or 0 for at in topic.committed(f"g-{topic.name}").values()) == 20)


def test_a_running_push_consumer_changes_its_mode(cluster: Cluster, topic: Topic) -> None:
    listener = Collector()
    settings = settings_of(topic, rebalance_ms=300)
    with PushConsumer(topic.connection, settings, listener, pop=PopSettings()) as consumer:
        until(lambda: any(queue.topic == topic.name for queue in consumer.queues))
        topic.send(50, prefix="pulled")
        listener.wait(50)
        pop_mode(cluster, topic)
        until(lambda: bool(consumer.popped_queues))
        topic.send(50, prefix="popped")
        listener.wait(100)
        pop_mode(cluster, topic, ConsumeMode.PULL)
        until(lambda: any(queue.topic == topic.name for queue in consumer.queues))
        topic.send(50, prefix="again")
        until(lambda: len(set(listener.bodies)) == 150)


def test_a_failed_message_is_redelivered_and_then_a_dead_letter(
    cluster: Cluster, topic: Topic
) -> None:
    pop_mode(cluster, topic)
    topic.send(1)
    listener = Collector(lambda *_: ConsumeStatus.RECONSUME_LATER)
    # A real broker does not wake pops for messages of a retry topic.
    pop = PopSettings(retry_seconds=(1,), poll_ms=1_000)
    settings = settings_of(topic, rebalance_ms=500, attempts_max=3)
    with PushConsumer(topic.connection, settings, listener, pop=pop):
        listener.wait(3)
        dead = f"%DLQ%{settings.group}"
        until(lambda: dead in cluster.topics() and _count(cluster, dead) == 1)
    assert [message.reconsume_times for message in listener.messages] == [0, 1, 2]


def test_two_members_pop_each_message_once(cluster: Cluster, topic: Topic) -> None:
    pop_mode(cluster, topic)
    bodies = topic.send(400)
    listener = Collector()
    settings = settings_of(topic, rebalance_ms=500)
    with (
        PushConsumer(topic.connection, settings, listener, pop=PopSettings(), instance_name="one"),
        PushConsumer(topic.connection, settings, listener, pop=PopSettings(), instance_name="two"),
    ):
        listener.wait(400)
    assert Counter(listener.bodies) == Counter(bodies)


@pytest.mark.parametrize("pending_max", [1, 30, 31])
def test_any_limit_of_waiting_messages_lets_all_be_popped(
    cluster: Cluster, topic: Topic, pending_max: int
) -> None:
    pop_mode(cluster, topic)
    bodies = topic.send(200)
    listener = Collector()
    settings = settings_of(topic, rebalance_ms=500)
    pop = PopSettings(pending_max=pending_max)
    with PushConsumer(topic.connection, settings, listener, pop=pop):
        listener.wait(200)
    assert Counter(listener.bodies) == Counter(bodies)


@pytest.mark.parametrize(("waiting", "asks"), [(0, 1), (7, 1), (8, 0)])
def test_pops_pause_above_the_limit_of_waiting_messages(waiting: int, asks: int) -> None:
    instance = FakeInstance()
    io = instance.fake_io
    puller = PopPuller(
        instance.as_instance(),
        ConsumerSettings("g"),
        PopSettings(pending_max=7),
        cast(PopConsumption, None),
        lambda: False,
    )
    owned = PopQueue(QueueId("T", "a", -1), Subscription(), pending=waiting)
    puller.start(owned)
    io.run()
    assert len(io.asked_of(PopMessages)) == asks


def test_shutdown_hands_back_messages_that_no_listener_began_with(
    cluster: Cluster, topic: Topic
) -> None:
    pop_mode(cluster, topic)
    bodies = topic.send(64)
    begun, release = threading.Event(), threading.Event()

    def stuck(*_: object) -> ConsumeStatus:
        begun.set()
        release.wait(30)
        return ConsumeStatus.SUCCESS

    listener = Collector(stuck)
    settings = settings_of(topic, rebalance_ms=500, threads=1)
    pop = PopSettings(invisible_ms=300_000)
    with PushConsumer(topic.connection, settings, listener, pop=pop) as consumer:
        assert begun.wait(30)
        pops = consumer._pops
        assert pops is not None

        def are_pending() -> bool:
            return sum(q.pending for q in pops.owned.values()) >= 64

        until(are_pending)

        # The listener ends once the pool takes no more work, however slow this machine is.
        def release_once_closed() -> None:
            until(lambda: consumer._pool.is_closed)
            release.set()

        stopping = threading.Thread(target=release_once_closed)
        stopping.start()
    stopping.join()
    # The listener's message is acknowledged; the others are visible long before five minutes end.
    rest = received(consumer_of(cluster, topic), 63)
    assert len(listener.bodies) == 1
    assert sorted([*rest, *listener.bodies]) == sorted(bodies)


def _count(cluster: Cluster, topic: str) -> int:
    return sum(stats.end - stats.start for stats in cluster.topic_stats(topic).values())
