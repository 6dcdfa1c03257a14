"""Where the messages with a key are: queues and offsets, by the brokers' key index, all of them.

A broker gives a page of the newest at a time, and knows them by the hash of the key: pages go on
backwards in time until one brings nothing new.
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

Place = tuple[QueueId, int]

# Brokers give no more at a time (maxMsgsNumBatch), and only so many where they are asked for an id.
_PAGE: Final = 64
_PAGES_MAX: Final = 1_000
# Brokers compare with the store time of their own clocks, which may be ahead of ours.
_CLOCK_SKEW_MS: Final = 3_600_000


class LookupIncompleteError(RocketMQError):
    """More messages with one hash were stored at once than a broker gives in one answer."""

    def __init__(self, topic: str, key: str, broker: str, found: int) -> None:
        super().__init__(topic, key, broker, found)
        self.topic, self.key, self.broker, self.found = topic, key, broker, found

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_LOOKUP.INCOMPLETE] topic={self.topic} broker={self.broker}: the key index "
            f"gave {self.found} messages with key {self.key!r}, and cannot give what was stored "
            "before. Read the topic without messageKey, and filter by the column keys."
        )


def offsets_of_key(cluster: Cluster, topic: str, key: str) -> list[Place]:
    """Every message with the key among its keys, sorted by queue and offset.

    Raises LookupIncompleteError, TopicNotFoundError and what a broker refuses: an answer that
    leaves a broker out would be no answer.
    """
    cluster.route(topic)
    found: list[Place] = []
    for broker in brokers_to_ask(cluster):
        found += _at_broker(cluster, broker, topic, key)
    return sorted(found)


def _at_broker(cluster: Cluster, broker: str, topic: str, key: str) -> set[Place]:
    seen: set[int] = set()
    places: set[Place] = set()
    end_ms = time.time_ns() // 1_000_000 + _CLOCK_SKEW_MS
    for _ in range(_PAGES_MAX):
        page = list(_page(cluster, broker, topic, key, end_ms))
        new = [message for message in page if message.physical_offset not in seen]
        seen.update(message.physical_offset for message in new)
        for message in new:
            # The index holds hashes: others' messages come along.
            if message.topic == topic and key in message.properties.get(KEYS, "").split():
                place = QueueId(topic, broker, message.queue_index), message.queue_offset
                places.add(place)
        if not new:
            if len(page) < _PAGE:
                return places
            break
        end_ms = min(message.store_ms for message in page)
    raise LookupIncompleteError(topic, key, broker, len(places))


def _page(
    cluster: Cluster, broker: str, topic: str, key: str, end_ms: int
) -> Iterator[StoredMessage]:
    request = QueryMessages(topic, key, _PAGE, 0, end_ms)
    timeout_ms = cluster.settings.request_timeout_ms
    try:
        reply = cluster.transport.call(request, broker=broker, timeout_ms=timeout_ms)
    except ProgressNotFoundError:
        return  # Code 22: nothing.
    for record in reply.records:
        position = 0
        while position < len(record):
            message, position = decode_record(record, position, where=f"{broker}'s answer")
            yield message
