"""A topic for a consumer's test, and a listener that collects messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.common.listener import (
    ConsumeContext,
    ConsumeStatus,
)
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Message, QueueId, Subscription, TopicConfig

SECONDS_MAX = 30.0


class Topic:
    """A test's topic and its messages."""

    def __init__(self, connection: ConnectionSettings, name: str, queue_count: int = 4) -> None:
        self.connection, self.name = connection, name
        with open_cluster(connection) as cluster:
            cluster.create_topic(TopicConfig(name, queue_count, queue_count))
            self.queues = cluster.queues(name)

    def send(self, count: int, *, tags: str | None = None, prefix: str = "") -> list[bytes]:
        bodies = [f"{prefix}{index}".encode() for index in range(count)]
        with Producer(self.connection) as producer:
            for index, queue in enumerate(self.queues):
                some = bodies[index :: len(self.queues)]
                if some:
                    producer.send_batch(queue, [Message(self.name, b, tags) for b in some])
        return bodies

    def committed(self, group: str) -> dict[QueueId, int | None]:
        with open_cluster(self.connection) as cluster:
            found = cluster.committed_offsets(group, self.queues)
        return {q: at if at is None or isinstance(at, int) else -1 for q, at in found.items()}

    def ends(self) -> dict[QueueId, int]:
        with open_cluster(self.connection) as cluster:
            return {q: b.end for q, b in cluster.bounds(self.queues).items()}  # type: ignore[union-attr]


class Collector:
    """A listener that collects messages; `outcome` decides its status."""

    def __init__(
        self,
        outcome: Callable[[list[ReceivedMessage], ConsumeContext], object] | None = None,
    ) -> None:
        self.messages: list[ReceivedMessage] = []
        self.changed = threading.Condition()
        self._outcome = outcome or (lambda *_: ConsumeStatus.SUCCESS)

    def __call__(self, messages: list[ReceivedMessage], context: ConsumeContext) -> Any:
        status = self._outcome(messages, context)
        with self.changed:
            self.messages += messages
            self.changed.notify_all()
        return status

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    def wait(self, count: int) -> None:
        with self.changed:
            arrived = self.changed.wait_for(lambda: len(self.messages) >= count, SECONDS_MAX)
        assert arrived, f"{len(self.messages)} of {count} messages arrived"


def until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not is_true():
        assert time.monotonic() < end, "it did not happen in time"
        threading.Event().wait(0.02)


def settings_of(topic: Topic, group: str | None = None, **more: object) -> ConsumerSettings:
    values: dict[str, object] = {
        "group": group or f"g-{topic.name}",
        "subscriptions": {topic.name: Subscription()},
        "consume_from": ConsumeFrom.FIRST,
        "threads": 4,
        **more,
    }
    return ConsumerSettings(**values)  # type: ignore[arg-type]
