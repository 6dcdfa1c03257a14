"""Reads messages, and stores them again elsewhere: for delays, retries, pops, transactions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from rocketmq_arrow.encode.record_block import block_from_message
from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_broker.engine.core.topics import is_group_topic
from rocketmq_broker.engine.tables import Tables
from rocketmq_broker.storage.log.reading import ReadResult
from rocketmq_broker.storage.settings import Appended
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import CorruptRecordError, ProtocolError
from rocketmq_wire.model import QueueId, StoredMessage
from rocketmq_wire.numbers import QUEUE_DIGITS_MAX, whole_number
from rocketmq_wire.records.handles import origin_topic_of
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.records.record import FLAG_BORN_HOST_V6, FLAG_STORE_HOST_V6, decode_record
from rocketmq_wire.requests.permissions import AccessRight

_LOG = logging.getLogger(__name__)

REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE: Final = "REAL_QID"
RECONSUME_TIMES_MAX: Final = 2**31 - 1
"""Records keep 32 bits for them."""
UNREADABLE_PAUSE_MS: Final = 60_000
"""The pause before the broker reads a damaged message again: it may be repaired meanwhile."""
_V6_BITS: Final = FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6


def store_again(
    message: StoredMessage,
    now_ms: int,
    tables: Tables,
    queue: QueueId,
    properties: Mapping[str, str],
    *,
    reconsume_times: int | None = None,
    prepared_offset: int = 0,
) -> Appended:
    """Store a message's body, flags, birth time and birth host in another queue.

    Raises LocalProtocolError if its properties became too large.
    """
    block = block_from_message(
        topic=queue.topic,
        queue_index=queue.index,
        body=message.body,
        properties=encode_properties(properties),
        flag=message.flag,
        # The bits give the width of the hosts, and the store host may be another one.
        sys_flag=message.sys_flag & ~_V6_BITS,
        born_ms=message.born_ms,
        born_host=message.born_host,
        store_host=tables.identity.store_host,
        reconsume_times=message.reconsume_times if reconsume_times is None else reconsume_times,
        prepared_transaction_offset=prepared_offset,
    )
    return tables.store.append(queue.topic, queue.index, block, now_ms)


def next_attempt(message: StoredMessage) -> int:
    """The reconsume times of a message that is stored for another attempt: senders choose them."""
    return min(message.reconsume_times + 1, RECONSUME_TIMES_MAX)


def store_own(
    body: bytes, now_ms: int, tables: Tables, queue: QueueId, properties: Mapping[str, str]
) -> Appended:
    """Store a record that the broker itself writes."""
    block = block_from_message(
        topic=queue.topic,
        queue_index=queue.index,
        body=body,
        properties=encode_properties(properties),
        flag=0,
        sys_flag=0,
        born_ms=now_ms,
        born_host=tables.identity.store_host,
        store_host=tables.identity.store_host,
    )
    return tables.store.append(queue.topic, queue.index, block, now_ms)


def read_message(
    store: Store, queue: QueueId, offset: int, *, check_crc: bool = True
) -> StoredMessage | None:
    """The message at an offset; None if it expired. Raises StorageError, CorruptRecordError."""
    found = store.read(queue.topic, queue.index, offset, count_max=1, bytes_max=1)
    return decode_record(b"".join(found.parts), check_crc=check_crc)[0] if found.count else None


def message_at(store: Store, position: int, *, check_crc: bool = True) -> StoredMessage | None:
    """The message at a position of the log; None if none is there. Refuses (1) a damaged one."""
    record = store.record_at(position)
    try:
        return None if record is None else decode_record(bytes(record), check_crc=check_crc)[0]
    except CorruptRecordError as error:
        raise refusals.record_damaged(position, error.reason) from error


def require_right(
    message: StoredMessage,
    position: int,
    store: Store,
    peer: Peer,
    right: AccessRight,
    *,
    group: str = "",
) -> None:
    """Check the sender's right to the topic of a message that it reached by its log position.

    The group's retry topics take the right to the topic that was popped. A body may contain the
    bytes of a record, so the message's queue must hold it at that position. Refusals: 1, 16.
    """
    if peer.sender is None:
        return
    peer.require(right, origin_topic_of(message.topic, group))
    queue = QueueId(message.topic, "", message.queue_index)
    queued = read_message(store, queue, message.queue_offset, check_crc=False)
    if queued is None or queued.physical_offset != position:
        raise refusals.record_missing(position)


def records_in(read: ReadResult) -> Iterator[bytes]:
    """The records of a read, one by one."""
    data, at = b"".join(read.parts), 0
    for size in np.frombuffer(read.sizes, "<i4").tolist():
        yield data[at : at + size]
        at += size


def deliver(message: StoredMessage, now_ms: int, tables: Tables) -> Appended | None:
    """Store a message that waited in the queue that its properties name.

    Returns None, and logs it, if the message cannot be stored there. As in RocketMQ its delay level
    or times stay among the properties; no code reads them any more.
    """
    topic = message.properties.get(REAL_TOPIC, "")
    text = message.properties.get(REAL_QUEUE, "0")
    index = whole_number(text, digits_max=QUEUE_DIGITS_MAX)
    is_known = tables.topics.get(topic) is not None or is_group_topic(topic)
    if not is_known or index is None:
        _LOG.warning("topic=%s queue=%s is gone: a delayed message is dropped", topic, text)
        return None
    target = (REAL_TOPIC, REAL_QUEUE)
    properties = {name: v for name, v in message.properties.items() if name not in target}
    try:
        return store_again(message, now_ms, tables, QueueId(topic, "", index), properties)
    except ProtocolError as error:
        _LOG.error("topic=%s: a delayed message cannot be delivered: %s", topic, error)
        return None
