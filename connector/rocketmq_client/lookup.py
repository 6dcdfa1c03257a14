"""Finds messages by key or id, through the brokers' key index: no queue is read.

A broker returns the newest messages first, a page at a time, and finds them by the hash of the key.
All brokers must answer, or the result would be incomplete. While a master is unavailable, its
replica is asked, which has the index too. A broker without any answer is an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from rocketmq_client.cluster import Cluster
from rocketmq_client.errors import LookupIncompleteError
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import (
    BrokerError,
    CorruptRecordError,
    ProgressNotFoundError,
    RocketMQError,
    TransportError,
)
from rocketmq_wire.model import MASTER_ID, Buffer, Host, QueueId, StoredMessage
from rocketmq_wire.records.message_id import parse_offset_message_id
from rocketmq_wire.records.properties import KEYS, UNIQUE_KEY
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.messages import QueryMessages, RecordsReply, ViewMessage

_logger = logging.getLogger(__name__)

# Brokers return at most this many messages at a time (maxMsgsNumBatch).
_PAGE: Final = 64
_PAGES_MAX: Final = 1_000
# Brokers compare store times of their own clocks, which may be ahead of ours.
_CLOCK_SKEW_MS: Final = 3_600_000


QueueOffset = tuple[QueueId, int]


class Found(NamedTuple):
    """A message and its broker."""

    broker: str
    message: StoredMessage


def find_by_key(cluster: Cluster, topic: str, key: str, count_max: int) -> list[Found]:
    """Find the newest messages of a topic with a key, at most `count_max` of them."""
    found = _query(cluster, topic, key, count_max, is_unique_key=False)
    return [at for at in found if _has_key(at.message, topic, key)][:count_max]


def find_by_id(cluster: Cluster, topic: str, message_id: str, count_max: int) -> list[Found]:
    """Find the messages with an id: one, or several that were sent again under the same id.

    The id is the client's unique key, or the broker's, which has the address of its record.
    """
    found = [
        at
        for at in _query(cluster, topic, message_id, count_max, is_unique_key=True)
        if at.message.topic == topic and at.message.properties.get(UNIQUE_KEY) == message_id
    ]
    if found:
        return found[:count_max]
    try:
        host, position = parse_offset_message_id(message_id)
    except (RocketMQError, ValueError):
        return []
    return _view(cluster, topic, host, position)


def offsets_of_key(cluster: Cluster, topic: str, key: str) -> list[QueueOffset]:
    """Find every message with the key among its keys, sorted by queue and offset.

    Raises LookupIncompleteError, TopicNotFoundError, and the error of any broker: without one
    broker the result would be incomplete.
    """
    cluster.route(topic)
    found: list[QueueOffset] = []
    for broker in _brokers_to_ask(cluster):
        found += _at_broker(cluster, broker, topic, key)
    return sorted(found)


def _at_broker(cluster: Cluster, broker: str, topic: str, key: str) -> set[QueueOffset]:
    seen: set[int] = set()
    offsets: set[QueueOffset] = set()
    end_ms = _latest_ms()
    for _ in range(_PAGES_MAX):
        page = _page(cluster, broker, topic, key, end_ms)
        new = [message for message in page if message.physical_offset not in seen]
        seen.update(message.physical_offset for message in new)
        for message in new:
            if _has_key(message, topic, key):
                queue = QueueId(topic, broker, message.queue_index)
                offsets.add((queue, message.queue_offset))
        if not new:
            if len(page) < _PAGE:
                return offsets
            break
        end_ms = min(message.store_ms for message in page)
    raise LookupIncompleteError(topic, key, broker, len(offsets))


def _brokers_to_ask(cluster: Cluster) -> tuple[str, ...]:
    """Return every broker of the cluster, sorted. Logs those of which only a replica can answer."""
    brokers = cluster.cluster_info().brokers
    for broker in brokers:
        if MASTER_ID not in broker.addresses:
            _logger.warning(
                "%s has no master; asking a replica, which may lack the newest messages",
                broker.name,
            )
    return tuple(sorted(broker.name for broker in brokers))


def _page(cluster: Cluster, broker: str, topic: str, key: str, end_ms: int) -> list[StoredMessage]:
    request = QueryMessages(topic, key, _PAGE, 0, end_ms)
    timeout_ms = cluster.settings.request_timeout_ms
    try:
        reply = cluster.transport.call(request, broker=broker, timeout_ms=timeout_ms)
    except ProgressNotFoundError:
        return []  # Code 22: no message.
    return [at.message for at in _decoded(broker, reply.records)]


def _has_key(message: StoredMessage, topic: str, key: str) -> bool:
    # The index holds hashes: messages with other keys come along.
    return message.topic == topic and key in message.properties.get(KEYS, "").split()


def _latest_ms() -> int:
    return time.time_ns() // 1_000_000 + _CLOCK_SKEW_MS


def _query(
    cluster: Cluster, topic: str, key: str, count_max: int, *, is_unique_key: bool
) -> list[Found]:
    request = QueryMessages(topic, key, count_max, 0, _latest_ms(), is_unique_key)
    found: list[Found] = []
    for broker, answer in cluster.ask_each(_brokers_to_ask(cluster), request).items():
        if isinstance(answer, RecordsReply):
            found += _decoded(broker, answer.records)
        elif not _is_no_message(answer):
            raise answer
    return sorted(found, key=lambda at: at.message.store_ms, reverse=True)


def _view(cluster: Cluster, topic: str, host: Host, position: int) -> list[Found]:
    """Read the message at a byte position of a broker's log.

    A broker that moved stores another address than its own. So if no broker has the id's address,
    all are asked, and the found record must match the id.
    """
    address = f"{'.'.join(map(str, host.address))}:{host.port}"
    brokers = cluster.cluster_info().brokers
    here = [b.name for b in brokers if b.addresses.get(MASTER_ID) == address]
    answers = cluster.ask_each([b.name for b in brokers], ViewMessage(position, topic))
    found: list[Found] = []
    unavailable: list[TransportError] = []
    for broker in here or answers:
        answer = answers[broker]
        if isinstance(answer, RecordsReply):
            try:
                found += _decoded(broker, answer.records)
            except CorruptRecordError:
                if here:
                    raise
        elif here and not _is_no_message(answer):
            raise answer
        elif isinstance(answer, TransportError):
            unavailable.append(answer)
    wanted = (topic, host, position)
    found = [
        at
        for at in found
        if (at.message.topic, at.message.store_host, at.message.physical_offset) == wanted
    ]
    if unavailable and not found:
        raise unavailable[0]  # It may have the message.
    return found


def _decoded(broker: str, records: Iterable[Buffer]) -> list[Found]:
    found: list[Found] = []
    for record in records:
        position = 0
        while position < len(record):
            message, position = decode_record(record, position, where=f"{broker}'s answer")
            found.append(Found(broker, message))
    return found


def _is_no_message(answer: RocketMQError) -> bool:
    """Whether this is one of the two answers of brokers without the message."""
    if isinstance(answer, ProgressNotFoundError):
        return True
    return isinstance(answer, BrokerError) and answer.code == ResponseCode.SYSTEM_ERROR
