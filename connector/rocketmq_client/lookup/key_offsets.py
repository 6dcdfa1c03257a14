"""Finds the queues and offsets of all messages with a key, by the brokers' key index.

A broker returns the newest messages first, a page at a time, and finds them by the hash of the key.
Pages continue backwards in time until one has nothing new.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from rocketmq_client.cluster import Cluster
from rocketmq_client.lookup.messages import brokers_to_ask
from rocketmq_wire.errors import ProgressNotFoundError, RocketMQError
from rocketmq_wire.model import QueueId, StoredMessage
from rocketmq_wire.records.properties import KEYS
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.messages import QueryMessages

QueueOffset = tuple[QueueId, int]

# Brokers return at most this many at a time (maxMsgsNumBatch).
_PAGE: Final = 64
_PAGES_MAX: Final = 1_000
# Brokers compare store times of their own clocks, which may be ahead of ours.
_CLOCK_SKEW_MS: Final = 3_600_000


class LookupIncompleteError(RocketMQError):
    """More messages with one hash have one store time than a broker returns in an answer."""

    def __init__(self, topic: str, key: str, broker: str, found: int) -> None:
        super().__init__(topic, key, broker, found)
        self.topic, self.key, self.broker, self.found = topic, key, broker, found

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_LOOKUP.INCOMPLETE] topic={self.topic} broker={self.broker}: the key index "
            f"returned {self.found} messages with key {self.key!r}, and cannot return older ones."
            " Read the topic without messageKey, and filter by the column keys."
        )


def offsets_of_key(cluster: Cluster, topic: str, key: str) -> list[QueueOffset]:
    """Find every message with the key among its keys, sorted by queue and offset.

    Raises LookupIncompleteError, TopicNotFoundError, and the error of any broker: without one
    broker the result would be incomplete.
    """
    cluster.route(topic)
    found: list[QueueOffset] = []
    for broker in brokers_to_ask(cluster):
        found += _at_broker(cluster, broker, topic, key)
    return sorted(found)


def _at_broker(cluster: Cluster, broker: str, topic: str, key: str) -> set[QueueOffset]:
    seen: set[int] = set()
    offsets: set[QueueOffset] = set()
    end_ms = time.time_ns() // 1_000_000 + _CLOCK_SKEW_MS
    for _ in range(_PAGES_MAX):
        page = list(_page(cluster, broker, topic, key, end_ms))
        new = [message for message in page if message.physical_offset not in seen]
        seen.update(message.physical_offset for message in new)
        for message in new:
            # The index holds hashes: messages with other keys come along.
            if message.topic == topic and key in message.properties.get(KEYS, "").split():
                queue = QueueId(topic, broker, message.queue_index)
                offsets.add((queue, message.queue_offset))
        if not new:
            if len(page) < _PAGE:
                return offsets
            break
        end_ms = min(message.store_ms for message in page)
    raise LookupIncompleteError(topic, key, broker, len(offsets))


def _page(
    cluster: Cluster, broker: str, topic: str, key: str, end_ms: int
) -> Iterator[StoredMessage]:
    request = QueryMessages(topic, key, _PAGE, 0, end_ms)
    timeout_ms = cluster.settings.request_timeout_ms
    try:
        reply = cluster.transport.call(request, broker=broker, timeout_ms=timeout_ms)
    except ProgressNotFoundError:
        return  # Code 22: no message.
    for record in reply.records:
        position = 0
        while position < len(record):
            message, position = decode_record(record, position, where=f"{broker}'s answer")
            yield message
