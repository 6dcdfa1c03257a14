"""Fills topics of a real broker, and knows what it sent."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rocketmq_client.cluster import Cluster
from rocketmq_wire.model import Bounds, QueueId, TopicConfig
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.messages import SendBatch

Row = tuple[str, int, int, bytes]


class Loader:
    """Sends batches to given queues; `sent` is every message as (topic, queue, offset, body)."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.sent: dict[QueueId, list[bytes]] = {}

    def create(self, topic: str, count: int = 2) -> list[QueueId]:
        """Make a topic, or give it more queues."""
        self.cluster.create_topic(TopicConfig(topic, count, count))
        return list(self.cluster.queues(topic))

    def put(
        self, queue: QueueId, count: int, *, tag: str = "A", properties: Mapping[str, str] = {}
    ) -> None:
        """Send `count` messages to one queue; each body says where it is."""
        sent = self.sent.setdefault(queue, [])
        bodies = [b"%s/%d" % (queue.topic.encode(), len(sent) + i) for i in range(count)]
        encoded = encode_properties({"TAGS": tag, "KEYS": "k", **properties})
        for first in range(0, count, 500):
            entries = [BatchEntry(0, body, encoded) for body in bodies[first : first + 500]]
            request = SendBatch("loader", queue, int(time.time() * 1_000), encode_batch(entries))
            self.cluster.transport.call(request, broker=queue.broker, timeout_ms=10_000)
        sent.extend(bodies)
        self.await_end(queue, len(sent))

    def await_end(self, queue: QueueId, end: int) -> None:
        """Java's broker acknowledges a message a moment before its queue lists it."""
        deadline = time.monotonic() + 10
        while True:
            held = self.cluster.bounds([queue])[queue]
            if isinstance(held, Bounds) and held.end >= end:
                return
            assert time.monotonic() < deadline, f"{queue} ends at {held}, not at {end}"

    def rows(self, *queues: QueueId, start: int = 0, end: int | None = None) -> list[Row]:
        """What reading these queues from `start` to `end` must give, sorted."""
        return sorted(
            (queue.topic, queue.index, offset, body)
            for queue in queues
            for offset, body in enumerate(self.sent.get(queue, []))
            if start <= offset and (end is None or offset < end)
        )
