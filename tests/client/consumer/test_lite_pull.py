"""The lite pull consumer on the bundled broker: poll, commit, assign, seek."""

from __future__ import annotations

import queue
import threading

import pytest

from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.allocation import Change
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings, FlowLimits
from rocketmq_client.consumer.lite_pull import LitePullConsumer
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue
from rocketmq_client.errors import ClientStateError
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId, Subscription, TopicConfig
from support.consuming import Topic, settings_of, until


def polled(consumer: LitePullConsumer, count: int) -> list[ReceivedMessage]:
    """Poll `count` messages; fails if they do not arrive in time."""
    messages: list[ReceivedMessage] = []
    empty = 0
    while len(messages) < count:
        some = consumer.poll(1_000)
        empty = 0 if some else empty + 1
        assert empty < 20, f"{len(messages)} of {count} messages came"
        messages += some
    return messages


def unassigned(topic: Topic) -> ConsumerSettings:
    return ConsumerSettings(f"g-{topic.name}", consume_from=ConsumeFrom.FIRST)


def test_every_message_is_polled_once_and_close_commits(topic: Topic) -> None:
    bodies = topic.send(100)
    settings = settings_of(topic)
    with LitePullConsumer(topic.connection, settings) as consumer:
        messages = polled(consumer, 100)
        assert consumer.poll(0) == []
    assert sorted(message.body for message in messages) == sorted(bodies)
    assert topic.committed(settings.group) == topic.ends()


def test_messages_polled_last_are_redelivered_after_an_exception(topic: Topic) -> None:
    topic.send(4)
    settings = settings_of(topic)
    first: list[ReceivedMessage] = []

    def work() -> None:
        with LitePullConsumer(topic.connection, settings) as consumer:
            first.extend(polled(consumer, 1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with LitePullConsumer(topic.connection, settings) as consumer:
        again = polled(consumer, 4)
    assert first[0].body in [message.body for message in again]


def test_without_auto_commit_only_commit_commits(topic: Topic) -> None:
    topic.send(8)
    settings = settings_of(topic)
    with LitePullConsumer(topic.connection, settings, auto_commit=False) as consumer:
        polled(consumer, 8)
        consumer.commit()
        assert topic.committed(settings.group) == topic.ends()
        topic.send(8)
        polled(consumer, 8)
    assert topic.committed(settings.group) != topic.ends()


def test_a_consumer_that_never_commits_gets_every_message(topic: Topic) -> None:
    topic.send(400)
    limits = FlowLimits(count_max=10)
    settings = settings_of(topic, limits=limits, pull_batch_size=10)
    with LitePullConsumer(topic.connection, settings, auto_commit=False) as consumer:
        assert len(polled(consumer, 400)) == 400
        assert set(consumer.consumed_offsets.values()) == {0}
    assert set(topic.committed(settings.group).values()) <= {0, None}


def test_with_auto_commit_messages_polled_last_are_not_committed_yet(topic: Topic) -> None:
    topic.send(3)
    settings = unassigned(topic)
    consumer = LitePullConsumer(topic.connection, settings)
    consumer.assign(topic.queues[:1])
    with consumer:
        polled(consumer, 1)
        assert consumer.consumed_offsets == {topic.queues[0]: 0}
        consumer.poll(0)
        assert consumer.consumed_offsets == {topic.queues[0]: 1}


@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_queue_whose_end_went_back_is_still_read(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, *, auto_commit: bool
) -> None:
    monkeypatch.setattr("rocketmq_client.consumer.membership.owned_queues.ILLEGAL_DELAY_MS", 100)
    topic.send(40)
    settings = settings_of(topic)
    with open_cluster(topic.connection) as cluster:
        cluster.commit(settings.group, dict.fromkeys(topic.queues, 7_000))
    with LitePullConsumer(topic.connection, settings, auto_commit=auto_commit) as consumer:
        until(lambda: topic.committed(settings.group) == topic.ends())
        topic.send(8, prefix="new")
        assert sorted(m.body for m in polled(consumer, 8)) == [b"new%d" % n for n in range(8)]


def test_no_more_than_asked_for_is_polled_at_once(topic: Topic) -> None:
    topic.send(40)
    with LitePullConsumer(topic.connection, settings_of(topic)) as consumer:
        sizes: list[int] = []
        while sum(sizes) < 40:
            sizes.append(len(consumer.poll(5_000, count_max=3)))
    assert max(sizes) == 3


def test_assigned_queues_are_read_and_no_others(topic: Topic) -> None:
    topic.send(40)
    consumer = LitePullConsumer(topic.connection, unassigned(topic))
    consumer.assign(topic.queues[1:3])
    with consumer:
        messages = polled(consumer, 20)
        assert consumer.queues == topic.queues[1:3]
        assert {message.queue_index for message in messages} == {1, 2}
        with pytest.raises(ClientStateError, match="queues were assigned"):
            consumer.subscribe(topic.name)


def test_seek_changes_the_offset_and_the_commit_follows(topic: Topic) -> None:
    topic.send(40)
    settings = unassigned(topic)
    consumer = LitePullConsumer(topic.connection, settings)
    first = topic.queues[0]
    consumer.assign([first])
    with consumer:
        assert [m.queue_offset for m in polled(consumer, 10)] == list(range(10))
        consumer.seek(first, 4)
        assert [m.queue_offset for m in polled(consumer, 6)] == list(range(4, 10))
        with pytest.raises(ClientStateError, match="is not read by this consumer"):
            consumer.seek(topic.queues[1], 0)
    assert topic.committed(settings.group)[first] == 10


def test_a_topic_can_be_subscribed_later_and_unsubscribed(topic: Topic) -> None:
    topic.send(4)
    with LitePullConsumer(topic.connection, unassigned(topic)) as consumer:
        assert consumer.poll(0) == []
        consumer.subscribe(topic.name)
        polled(consumer, 4)
        consumer.unsubscribe(topic.name)
        until(lambda: consumer.queues == ())


def test_wake_ends_a_poll_from_another_thread(topic: Topic) -> None:
    with LitePullConsumer(topic.connection, settings_of(topic)) as consumer:
        waker = threading.Timer(0.05, consumer.wake)
        waker.start()
        assert consumer.poll(60_000) == []
        waker.join()


def test_messages_can_be_polled_with_a_callback(topic: Topic) -> None:
    topic.send(40)
    found: queue.SimpleQueue[list[ReceivedMessage] | RocketMQError] = queue.SimpleQueue()
    with LitePullConsumer(topic.connection, settings_of(topic)) as consumer:
        got = 0
        while got < 40:
            consumer.poll_async(found.put, 5_000)
            some = found.get(timeout=30)
            assert isinstance(some, list)
            got += len(some)
        consumer.poll_async(found.put, 0)
        assert found.get(timeout=30) == []
    assert found.empty()


def test_seek_stays_within_the_queues_bounds(topic: Topic) -> None:
    topic.send(40)
    first = topic.queues[0]
    consumer = LitePullConsumer(topic.connection, unassigned(topic))
    consumer.assign([first])
    with consumer:
        polled(consumer, 10)
        with pytest.raises(ValueError, match=r"has \[0,10\)"):
            consumer.seek(first, 11)
        consumer.seek_to_begin(first)
        assert len(polled(consumer, 10)) == 10
        consumer.seek_to_end(first)
        topic.send(4, prefix="new")
        assert [message.body for message in polled(consumer, 1)] == [b"new0"]


def test_a_paused_queue_is_not_pulled_from(topic: Topic) -> None:
    consumer = LitePullConsumer(topic.connection, unassigned(topic))
    consumer.assign(topic.queues[:2])
    consumer_queues = topic.queues[:2]
    with consumer:
        consumer.pause(consumer_queues[:1])
        until(lambda: consumer.queues == consumer_queues)
        topic.send(4)
        # A held pull may still return the first message; no pull follows it.
        polled(consumer, 1)
        consumer.resume(consumer_queues[:1])
        until(lambda: sum(consumer.consumed_offsets.values()) + len(consumer.poll(100)) >= 2)


def test_changes_of_queues_are_reported(topic: Topic) -> None:
    shared: list[Change] = []
    known: list[tuple[QueueId, ...]] = []
    settings = settings_of(topic, route_ms=50)
    with LitePullConsumer(topic.connection, settings, on_queues=shared.append) as consumer:
        consumer.on_topic_queues(topic.name, known.append)
        until(lambda: bool(shared) and consumer.queues == topic.queues)
        assert shared[0].gained == topic.queues
        with open_cluster(topic.connection) as cluster:
            cluster.create_topic(TopicConfig(topic.name, 6, 6))
        until(lambda: [len(queues) for queues in known] == [6])
        until(lambda: len(consumer.queues) == 6)


def test_an_exception_of_a_callback_does_not_end_rebalance(topic: Topic) -> None:
    def on_queues(change: Change) -> None:
        raise SystemExit(str(change))

    settings = settings_of(topic, route_ms=50)
    with LitePullConsumer(topic.connection, settings, on_queues=on_queues) as consumer:
        until(lambda: consumer.queues == topic.queues)
        with open_cluster(topic.connection) as cluster:
            cluster.create_topic(TopicConfig(topic.name, 6, 6))
        until(lambda: len(consumer.queues) == 6)


def test_waiting_messages_of_all_queues_have_a_limit(topic: Topic) -> None:
    topic.send(400)
    settings = settings_of(topic, pull_batch_size=10)
    with LitePullConsumer(topic.connection, settings, waiting_max=20) as consumer:
        until(
            lambda: (
                sum(len(consumer._queues.owned[q].process.pending) for q in consumer.queues) >= 20
            )
        )
        assert consumer._waiting_count <= 20 + 4 * 10
        assert len(polled(consumer, 400)) == 400


class Watched(LitePullConsumer):
    """Notes whether two threads use the set of polled queues at a time."""

    is_watched = False

    @property  # type: ignore[override]
    def _polled(self) -> set[OwnedQueue]:
        self._look()
        return self._kept

    @_polled.setter
    def _polled(self, polled: set[OwnedQueue]) -> None:
        self._look()
        self._kept = polled

    def _look(self) -> None:
        assert not self.is_watched or self._changed._is_owned()  # type: ignore[attr-defined]


@pytest.mark.parametrize("has_failed", [True, False])
def test_polled_queues_are_changed_by_one_thread_at_a_time(
    topic: Topic, *, has_failed: bool
) -> None:
    topic.send(8)
    consumer = Watched(topic.connection, unassigned(topic))
    consumer.assign(topic.queues[:1])
    consumer.is_watched = True
    consumer.start()
    try:
        polled(consumer, 2)
        consumer.commit()
        assert consumer.consumed_offsets == {topic.queues[0]: 2}
        consumer.seek_to_begin(topic.queues[0])
        polled(consumer, 2)
    finally:
        consumer.__exit__(ValueError if has_failed else None)


def test_a_call_on_a_stopped_consumer_raises(topic: Topic) -> None:
    consumer = LitePullConsumer(topic.connection, settings_of(topic))
    with pytest.raises(ClientStateError, match="call start"):
        consumer.poll(0)


def test_a_topic_without_a_route_is_warned_about(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ConsumerSettings(f"g-{topic.name}", {f"{topic.name}x": Subscription()})
    with LitePullConsumer(topic.connection, settings):
        until(lambda: "nothing is consumed until it has a route" in caplog.text)
    (warning,) = [line for line in caplog.messages if "has a route" in line]
    assert warning.startswith(f"topic={topic.name}x: ")
