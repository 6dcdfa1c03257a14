"""A test's view of a broker: new topics, sent and received messages, lag."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.consumer.common.messages import ReceivedMessage, decode_messages
from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import TopicNotFoundError, raise_first
from rocketmq_wire.model import Message, OffsetRange, QueueId, TopicConfig

if TYPE_CHECKING:
    from rocketmq_broker import Broker
    from rocketmq_cli.support.broker_process import BrokerProcess

QUEUES: Final = 4
"""The default number of queues of a new topic."""
_GROUP: Final = "pytest-rocketmq"
_BATCH_COUNT_MAX: Final = 500
_BATCH_BYTES_MAX: Final = 1 << 20
# A broker acknowledges a message or a topic shortly before readers see it.
_APPEARS_WITHIN_S: Final = 10.0
_POLL_S: Final = 0.005
_NAME_LENGTH_MAX: Final = 60

Body = str | bytes | Mapping[str, object] | Message
QueueOffset = tuple[int, int]
"""A queue's index and an offset in it."""


class RocketMQ:
    """One broker or cluster as one test sees it; `topic` and `group` are the test's own.

    Args:
        name_server: The address for `nameServer`.
        endpoints: The address for `endpoints`, or what starts gRPC and returns it; None: there is
            none.
        label: The test's name, part of its topics and groups.
        log_lines: Returns the last lines of the broker's log.
        deletes_topics: Deletes the test's topics at the end.
        brokers: The brokers that the factory started, by name.
    """

    def __init__(
        self,
        name_server: str,
        endpoints: str | Callable[[], str] | None,
        *,
        label: str = "test",
        log_lines: Callable[[], list[str]] | None = None,
        deletes_topics: bool = False,
        brokers: Mapping[str, Broker | BrokerProcess] | None = None,
    ) -> None:
        self._real_name_server = name_server
        self._real_endpoints = endpoints
        self._label = re.sub(r"[^A-Za-z0-9_-]+", "-", label)[:_NAME_LENGTH_MAX].strip("-")
        self._deletes_topics = deletes_topics
        self._topic: str | None = None
        self._group: str | None = None
        self._topics: list[str] = []
        self._cluster: Cluster | None = None
        self.brokers = dict(brokers or {})
        """The brokers that the factory started, by name: each has `start()` and `stop()`.

        Those with `process=True` have `kill()`, too.
        """
        self.log_lines = log_lines
        """Returns the last lines of the broker's log; None for a cluster on other machines."""

    @property
    def name_server(self) -> str:
        """`host:port` for the option `nameServer`."""
        return self._real_name_server

    @property
    def endpoints(self) -> str:
        """`host:port` for the option `endpoints`."""
        if self._real_endpoints is None:
            raise RuntimeError("no gRPC address of this broker is known: use name_server")
        if not isinstance(self._real_endpoints, str):
            self._real_endpoints = self._real_endpoints()
        return self._real_endpoints

    @property
    def options(self) -> dict[str, str]:
        """Options of a Spark reader of the test's topic."""
        return {"nameServer": self.name_server, "subscribe": self.topic}

    @property
    def cluster(self) -> Cluster:
        """The client, for requests without a method here; connected at first use."""
        if self._cluster is None:
            settings = ConnectionSettings(name_servers=(self._real_name_server,))
            self._cluster = open_cluster(settings)
        return self._cluster

    @property
    def topic(self) -> str:
        """The test's own topic, created at first use."""
        if self._topic is None:
            self._topic = self.create_topic()
        return self._topic

    @property
    def group(self) -> str:
        """The name of the test's own consumer group."""
        if self._group is None:
            self._group = self._fresh_name()
        return self._group

    def create_topic(self, name: str | None = None, *, queues: int = QUEUES) -> str:
        """Create a topic, by default under a new name."""
        name = name or self._fresh_name()
        self.cluster.create_topic(TopicConfig(name, queues, queues))
        self._topics.append(name)
        _await(
            lambda: self._has_queues(name), f"the name server does not list the new topic {name}"
        )
        return name

    def _has_queues(self, topic: str) -> bool:
        try:
            return bool(self.cluster.queues(topic))
        except TopicNotFoundError:
            return False

    def _fresh_name(self) -> str:
        # Random, not counted: other processes of the same run may use the same cluster.
        return f"{self._label}-{secrets.token_hex(4)}"

    def produce(
        self,
        bodies: Iterable[Body],
        *,
        topic: str | None = None,
        queue: int | None = None,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> list[QueueOffset]:
        """Send messages, wait until readers see them, and return the queue and offset of each.

        A body is text, bytes, a mapping that becomes a JSON object, or a Message, which keeps its
        own tags, keys and properties. Without `queue` the topic's queues are used in rotation.
        """
        if isinstance(bodies, (str, bytes, Message, Mapping)):
            raise TypeError("produce takes a list of bodies: produce([body]) sends a single one")
        name = topic or self.topic
        default = Message(name, b"", tags, keys, dict(properties or {}))
        messages = [_message(body, default) for body in bodies]
        queues = self.cluster.queues(name)
        if queue is not None:
            queues = tuple(each for each in queues if each.index == queue)
            if not queues:
                raise ValueError(f"topic {name} has no queue {queue}")
        by_queue: dict[QueueId, list[int]] = {}
        for number in range(len(messages)):
            by_queue.setdefault(queues[number % len(queues)], []).append(number)
        stored: dict[int, QueueOffset] = {}
        ends: dict[QueueId, int] = {}
        with Producer(self.cluster, _GROUP) as producer:
            for target, numbers in by_queue.items():
                for part in _parts(numbers, messages):
                    reply = producer.send_batch(target, [messages[number] for number in part])
                    for offset, number in enumerate(part, reply.start):
                        stored[number] = (target.index, offset)
                    ends[target] = reply.start + len(part)
        _await(
            lambda: self._are_visible(ends),
            f"readers do not see what the broker acknowledged: {ends}",
        )
        return [stored[number] for number in range(len(messages))]

    def consume_all(self, topic: str | None = None) -> list[ReceivedMessage]:
        """Every message of a topic, by queue and offset. It commits nothing."""
        name = topic or self.topic
        bounds = raise_first(self.cluster.bounds(self.cluster.queues(name)))
        ranges = [
            OffsetRange(queue, held.start, held.end)
            for queue, held in sorted(bounds.items())
            if held.end > held.start
        ]
        found: list[ReceivedMessage] = []
        for chunk in self.cluster.read_ranges(ranges, ReadSpec(_GROUP)):
            messages = decode_messages(chunk.body, broker=chunk.queue.broker, topic=name)
            found += [each for each in messages if chunk.start <= each.queue_offset < chunk.end]
        return sorted(found, key=lambda each: (each.broker, each.queue_index, each.queue_offset))

    def lag(self, group: str | None = None, topic: str | None = None) -> int:
        """The messages that a group has not consumed; all of a queue without a committed offset."""
        bounds = raise_first(self.cluster.bounds(self.cluster.queues(topic or self.topic)))
        committed = raise_first(self.cluster.committed_offsets(group or self.group, tuple(bounds)))
        return sum(
            held.end - max(held.start, committed[queue] or 0) for queue, held in bounds.items()
        )

    def _are_visible(self, ends: Mapping[QueueId, int]) -> bool:
        bounds = raise_first(self.cluster.bounds(ends)) if ends else {}
        return all(held.end >= ends[queue] for queue, held in bounds.items())

    def close(self) -> None:
        """Close the connections; on an existing cluster, delete the topics of the test."""
        if self._cluster is None:
            return
        try:
            for name in self._topics if self._deletes_topics else ():
                self._cluster.delete_topic(name)
        finally:
            self._cluster.close()
            self._cluster = None

    def __enter__(self) -> RocketMQ:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _await(is_done: Callable[[], bool], failure: str) -> None:
    give_up_at = time.monotonic() + _APPEARS_WITHIN_S
    while not is_done():
        if time.monotonic() > give_up_at:
            raise TimeoutError(failure)
        time.sleep(_POLL_S)


def _message(body: Body, default: Message) -> Message:
    if isinstance(body, Message):
        return replace(body, topic=default.topic)
    if isinstance(body, bytes):
        return replace(default, body=body)
    return replace(default, body=(body if isinstance(body, str) else json.dumps(body)).encode())


def _parts(numbers: list[int], messages: list[Message]) -> Iterable[list[int]]:
    """Split message numbers into parts that fit into one request each."""
    part: list[int] = []
    size = 0
    for number in numbers:
        body_size = len(messages[number].body)
        if part and (len(part) >= _BATCH_COUNT_MAX or size + body_size > _BATCH_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(number)
        size += body_size
    if part:
        yield part
