"""The base of consumers that ask for messages themselves: pull and lite pull.

The application may also ask brokers for a topic's queues, and for offsets of queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from rocketmq_client.consumer.group_consumer import GroupConsumer
from rocketmq_wire.errors import ProgressNotFoundError, RocketMQError
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.offsets import (
    GetCommittedOffset,
    GetMaxOffset,
    GetMinOffset,
    SearchOffset,
)
from rocketmq_wire.requests.topics import GetRoute

R = TypeVar("R", bound=Reply)


class ActiveConsumer(GroupConsumer):
    """Every question waits for its reply; all raise ClientStateError before the start."""

    _consume_type = "CONSUME_ACTIVELY"
    _asked_topics: frozenset[str] = frozenset()

    def topics(self) -> Iterable[str]:
        return {*self._subscriptions, *self._asked_topics}

    def fetch_queues(self, topic: str) -> tuple[QueueId, ...]:
        """Ask the name server for a topic's queues. Raises TopicNotFoundError."""
        request, timeout_ms = GetRoute(topic), self.settings.request_timeout_ms
        reply = self._running().io.call(request, broker=None, timeout_ms=timeout_ms)
        return reply.route.readable_queues(topic)

    def min_offset(self, queue: QueueId) -> int:
        """The first available offset."""
        return self._ask(queue, GetMinOffset(queue)).value

    def max_offset(self, queue: QueueId) -> int:
        """The offset that the next message will get."""
        return self._ask(queue, GetMaxOffset(queue)).value

    def offset_for_timestamp(self, queue: QueueId, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after a time."""
        return self._ask(queue, SearchOffset(queue, timestamp_ms)).value

    def committed(self, queue: QueueId) -> int | None:
        """The group's committed offset in a queue, or None."""
        try:
            return self._ask(queue, GetCommittedOffset(self.group, queue)).value
        except ProgressNotFoundError:
            return None

    def commit_offsets(self, offsets: Mapping[QueueId, int]) -> None:
        """Commit offsets, also smaller ones. Raises the first broker's error."""
        self._running()
        for topic in {queue.topic for queue in offsets}:
            self._join_topic(topic)
        for reply in self._queues.offset_store.commit(offsets).values():
            if isinstance(reply, RocketMQError):
                raise reply

    def _ask(self, queue: QueueId, request: Request[R]) -> R:
        self._join_topic(queue.topic)
        timeout_ms = self.settings.request_timeout_ms
        return self._running().io.call(request, broker=queue.broker, timeout_ms=timeout_ms)

    def _join_topic(self, topic: str) -> None:
        """Join the group at the topic's brokers: some refuse the offsets of non-members."""
        if topic not in self._asked_topics:
            self._asked_topics |= {topic}
            self._announce(self._running())
