"""Orderly push consumers on the bundled broker keep each queue's order over failures."""

from __future__ import annotations

import threading

from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.common.listener import (
    ConsumeContext,
    OrderlyStatus,
)
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_client.producer.producer import Producer
from rocketmq_wire.model import Message
from support.consuming import Collector, Topic, settings_of, until


def test_in_order_each_queue_is_consumed_in_order_also_over_failures(topic: Topic) -> None:
    topic.send(80)
    failed: set[bytes] = set()
    seen: dict[int, list[int]] = {}

    def outcome(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        (message,) = messages
        if int(message.body) % 16 == 0 and message.body not in failed:
            failed.add(message.body)
            context.suspend_ms = 10
            return OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        seen.setdefault(context.queue.index, []).append(message.queue_offset)
        return OrderlyStatus.SUCCESS

    listener = Collector(outcome)
    settings = settings_of(topic)
    with PushConsumer(topic.connection, settings, orderly_listener=listener):
        listener.wait(85)
    assert seen == {index: list(range(20)) for index in range(4)}
    assert len(failed) == 5
    assert topic.committed(settings.group) == topic.ends()


def test_in_order_a_queue_with_a_backlog_is_handed_over_between_two_batches(topic: Topic) -> None:
    topic.send(12_000)
    order: dict[int, list[int]] = {}
    pause = threading.Event()

    def outcome(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        # The waiting messages would keep a queue's thread busy for half a minute.
        pause.wait(0.01)
        order.setdefault(context.queue.index, []).append(messages[0].queue_offset)
        return OrderlyStatus.SUCCESS

    first, second = Collector(outcome), Collector(outcome)
    settings = settings_of(topic)
    with PushConsumer(topic.connection, settings, orderly_listener=first):
        until(lambda: len(order) == len(topic.queues))
        with PushConsumer(topic.connection, settings, orderly_listener=second):
            second.wait(10)
        assert len(first.messages) + len(second.messages) < 12_000
    for offsets in order.values():
        assert offsets == list(range(len(offsets))), "in order, with any owner of the queue"


def test_an_orderly_message_without_attempts_left_becomes_a_dead_letter(topic: Topic) -> None:
    with Producer(topic.connection) as producer:
        queue = topic.queues[0]
        producer.send_batch(queue, [Message(topic.name, body) for body in (b"bad", b"good")])

    def outcome(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        context.suspend_ms = 10
        return OrderlyStatus.SUCCESS if messages[0].body == b"good" else None

    listener = Collector(outcome)
    settings = settings_of(topic, attempts_max=2)
    with PushConsumer(topic.connection, settings, orderly_listener=listener):
        listener.wait(4)
    assert listener.bodies == [b"bad", b"bad", b"bad", b"good"]
    with open_cluster(topic.connection) as cluster:
        dead = cluster.queues(f"%DLQ%{settings.group}")
        assert [bounds.end for bounds in cluster.bounds(dead).values()] == [1]  # type: ignore[union-attr]


def test_without_auto_commit_a_rollback_brings_all_back(topic: Topic) -> None:
    with Producer(topic.connection) as producer:
        queue = topic.queues[0]
        producer.send_batch(queue, [Message(topic.name, body) for body in (b"a", b"b", b"c")])
    consumed, committed = OrderlyStatus.SUCCESS, OrderlyStatus.COMMIT
    answers = iter([consumed, OrderlyStatus.ROLLBACK, consumed, consumed, committed])

    def outcome(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        del messages
        context.auto_commit, context.suspend_ms = False, 10
        return next(answers)

    listener = Collector(outcome)
    settings = settings_of(topic)
    with PushConsumer(topic.connection, settings, orderly_listener=listener):
        listener.wait(5)
    assert listener.bodies == [b"a", b"b", b"a", b"b", b"c"]
    assert topic.committed(settings.group)[topic.queues[0]] == 3
