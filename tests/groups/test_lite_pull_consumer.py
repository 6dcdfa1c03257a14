"""The lite pull consumer on the bundled broker: poll, commit, assign, seek."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from groups.test_push_consumer import Topic, settings_of, until
from rocketmq_broker_sim.broker import Broker
from rocketmq_broker_sim.config import config_from
from rocketmq_client.groups.client_instance import ClientStateError
from rocketmq_client.groups.consumer_settings import ConsumerSettings
from rocketmq_client.groups.lite_pull_consumer import LitePullConsumer
from rocketmq_client.groups.messages import ReceivedMessage
from rocketmq_client.groups.start_offset import ConsumeFrom
from rocketmq_client.settings import ConnectionSettings


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    with Broker(config_from({"flush": "memory", "grpc": False})) as broker:
        yield broker.name_server


@pytest.fixture
def connection(name_server: str) -> ConnectionSettings:
    return ConnectionSettings(name_servers=(name_server,))


@pytest.fixture
def topic(connection: ConnectionSettings, request: pytest.FixtureRequest) -> Topic:
    return Topic(connection, f"t{abs(hash(request.node.name))}")


def polled(consumer: LitePullConsumer, count: int) -> list[ReceivedMessage]:
    """As many messages, polled; fails when they do not come."""
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


def test_every_message_is_polled_once_and_progress_is_stored_at_the_end(topic: Topic) -> None:
    bodies = topic.send(100)
    settings = settings_of(topic)
    with LitePullConsumer(topic.connection, settings) as consumer:
        messages = polled(consumer, 100)
        assert consumer.poll(0) == []
    assert sorted(message.body for message in messages) == sorted(bodies)
    assert topic.progress(settings.group) == topic.ends()


def test_what_was_polled_last_comes_again_when_the_work_on_it_failed(topic: Topic) -> None:
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


def test_without_auto_commit_only_commit_is_progress(topic: Topic) -> None:
    topic.send(8)
    settings = settings_of(topic)
    with LitePullConsumer(topic.connection, settings, auto_commit=False) as consumer:
        polled(consumer, 8)
        consumer.commit()
        assert topic.progress(settings.group) == topic.ends()
        topic.send(8)
        polled(consumer, 8)
    assert topic.progress(settings.group) != topic.ends()


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


def test_seek_goes_on_elsewhere_and_progress_follows(topic: Topic) -> None:
    topic.send(40)
    settings = unassigned(topic)
    consumer = LitePullConsumer(topic.connection, settings)
    queue = topic.queues[0]
    consumer.assign([queue])
    with consumer:
        assert [m.queue_offset for m in polled(consumer, 10)] == list(range(10))
        consumer.seek(queue, 4)
        assert [m.queue_offset for m in polled(consumer, 6)] == list(range(4, 10))
        with pytest.raises(ClientStateError, match="is not read by this consumer"):
            consumer.seek(topic.queues[1], 0)
    assert topic.progress(settings.group)[queue] == 10


def test_a_topic_can_be_subscribed_to_later_and_given_up(topic: Topic) -> None:
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


def test_a_consumer_that_does_not_run_says_so(topic: Topic) -> None:
    consumer = LitePullConsumer(topic.connection, settings_of(topic))
    with pytest.raises(ClientStateError, match="call start"):
        consumer.poll(0)
