"""The pull consumer on the bundled broker: sync, callbacks, held pulls, committed offsets."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.pull import PullConsumer, PullResult
from rocketmq_client.errors import ClientStateError
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.requests.messages import PullStatus
from support.consuming import Topic, settings_of, until


@pytest.fixture
def topic(name_server: str, request: pytest.FixtureRequest) -> Topic:
    connection = ConnectionSettings(name_servers=(name_server,))
    return Topic(connection, f"t{abs(hash(request.node.name))}")


@pytest.fixture
def consumer(topic: Topic) -> Iterator[PullConsumer]:
    settings = ConsumerSettings(f"g-{topic.name}", persist_ms=50)
    with PullConsumer(topic.connection, settings) as consumer:
        yield consumer


def test_a_pull_returns_messages_and_the_next_offset(consumer: PullConsumer, topic: Topic) -> None:
    topic.send(40)
    first = topic.queues[0]
    result = consumer.pull(first, 0, 4)
    assert [message.queue_offset for message in result.messages] == [0, 1, 2, 3]
    assert (result.status, result.next_begin, result.end) == (PullStatus.FOUND, 4, 10)
    at_end = consumer.pull(first, 10)
    assert (at_end.status, at_end.messages) == (PullStatus.NO_NEW_MESSAGE, ())
    beyond = consumer.pull(first, 99)
    assert (beyond.status, beyond.next_begin) == (PullStatus.OFFSET_ILLEGAL, 10)


def test_a_pull_filters_by_tag_and_continues_behind_other_tags(
    consumer: PullConsumer, topic: Topic
) -> None:
    topic.send(4, tags="TagA")
    result = consumer.pull(topic.queues[0], 0, subscription=Subscription("TagB"))
    assert (result.status, result.next_begin) == (PullStatus.NO_MATCHED_MESSAGE, 1)


def test_a_callback_is_called_once_with_the_result(consumer: PullConsumer, topic: Topic) -> None:
    topic.send(40)
    found: queue.SimpleQueue[PullResult | RocketMQError] = queue.SimpleQueue()
    for one in topic.queues:
        consumer.pull_async(one, 0, found.put, 100)
    results = [found.get(timeout=30) for _ in topic.queues]
    counts = [len(r.messages) for r in results if isinstance(r, PullResult)]
    assert counts == [10] * 4
    consumer.pull_async(QueueId(topic.name, "nobody", 0), 0, found.put)
    assert isinstance(found.get(timeout=30), RocketMQError)
    assert found.empty()


def test_a_held_pull_returns_when_a_message_arrives(consumer: PullConsumer, topic: Topic) -> None:
    results: list[PullResult] = []
    pull = threading.Thread(
        target=lambda: results.append(consumer.pull_when_there(topic.queues[0], 0))
    )
    pull.start()
    topic.send(1)
    pull.join(30)
    assert [len(result.messages) for result in results] == [1]


def test_the_application_decides_the_committed_offset(consumer: PullConsumer, topic: Topic) -> None:
    topic.send(40)
    first, second = topic.queues[:2]
    assert consumer.committed(first) is None
    consumer.update_offset(first, 7)
    until(lambda: consumer.committed(first) == 7)
    consumer.update_offset(first, 3)
    consumer.update_offset(second, 5)
    consumer.close()
    committed = topic.committed(consumer.group)
    assert (committed[first], committed[second]) == (3, 5)


def test_brokers_are_asked_for_queues_and_offsets(consumer: PullConsumer, topic: Topic) -> None:
    topic.send(40)
    first = topic.queues[0]
    assert consumer.fetch_queues(topic.name) == topic.queues
    assert (consumer.min_offset(first), consumer.max_offset(first)) == (0, 10)
    assert consumer.offset_for_timestamp(first, 0) == 0
    consumer.commit_offsets({first: 4})
    assert consumer.committed(first) == 4


def test_members_that_pull_rebalance_queues_too(topic: Topic) -> None:
    settings = settings_of(topic)
    with PullConsumer(topic.connection, settings) as one:
        until(lambda: one.queues == topic.queues)
        with PullConsumer(topic.connection, settings) as two:
            until(lambda: len(one.queues) == len(two.queues) == 2)
            assert {*one.queues, *two.queues} == {*topic.queues}
        until(lambda: one.queues == topic.queues)


def test_a_message_can_be_sent_back(consumer: PullConsumer, topic: Topic) -> None:
    topic.send(1)
    (message,) = consumer.pull(topic.queues[0], 0).messages
    assert consumer.send_back(message, delay_level=1)
    (retry,) = consumer.fetch_queues(f"%RETRY%{consumer.group}")
    result = consumer.pull_when_there(retry, 0)
    assert [(m.topic, m.body) for m in result.messages] == [(topic.name, message.body)]


def test_a_new_consumer_has_no_offsets_and_takes_options_by_name(topic: Topic) -> None:
    consumer = PullConsumer(topic.connection, ConsumerSettings("g"))
    assert consumer.offsets() == {}
    with pytest.raises(TypeError, match="positional"):
        PullConsumer(topic.connection, ConsumerSettings("g"), "an instance")  # type: ignore[misc]


def test_a_consumer_is_started_once(topic: Topic) -> None:
    consumer = PullConsumer(topic.connection, ConsumerSettings(f"g-{topic.name}"))
    with pytest.raises(ClientStateError, match="call start"):
        consumer.pull(topic.queues[0], 0)
    with consumer, pytest.raises(ClientStateError, match="is running"):
        consumer.start()
    with pytest.raises(ClientStateError, match="was shut down: make a new"):
        consumer.start()
