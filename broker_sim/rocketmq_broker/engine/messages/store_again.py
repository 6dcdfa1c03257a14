"""Stores a message again in another queue: for retries, delays, pops and transactions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from rocketmq_arrow.encode.record_block import RecordBlock, block_from_message
from rocketmq_broker.engine.core.topics import is_group_topic
from rocketmq_broker.engine.tables import Tables
from rocketmq_broker.storage.settings import Appended
from rocketmq_wire.errors import ProtocolError
from rocketmq_wire.model import Host, StoredMessage
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.records.record import FLAG_BORN_HOST_V6, FLAG_STORE_HOST_V6

_LOG = logging.getLogger(__name__)

REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE: Final = "REAL_QID"
UNREADABLE_PAUSE_MS: Final = 60_000
"""The pause before the broker reads a damaged message again: it may be repaired meanwhile."""
_V6_BITS: Final = FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6


def block_again(
    message: StoredMessage,
    *,
    topic: str,
    queue_index: int,
    properties: Mapping[str, str],
    store_host: Host,
    reconsume_times: int,
    prepared_offset: int = 0,
) -> RecordBlock:
    """A block with the message's body, flags, birth time and birth host for another queue.

    Raises LocalProtocolError.
    """
    return block_from_message(
        topic=topic,
        queue_index=queue_index,
        body=message.body,
        properties=encode_properties(properties),
        flag=message.flag,
        # The bits give the width of the hosts, and the store host may be another one.
        sys_flag=message.sys_flag & ~_V6_BITS,
        born_ms=message.born_ms,
        born_host=message.born_host,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
    )


def deliver(message: StoredMessage, now_ms: int, tables: Tables) -> Appended | None:
    """Store a message that waited in the queue that its properties name.

    Returns None, and logs it, if the message cannot be stored there. As in RocketMQ its delay level
    or times stay among the properties; no code reads them any more.
    """
    topic = message.properties.get(REAL_TOPIC, "")
    index = message.properties.get(REAL_QUEUE, "0")
    is_known = tables.topics.get(topic) is not None or is_group_topic(topic)
    if not is_known or not index.isdecimal():
        _LOG.warning("topic=%s queue=%s is gone: a delayed message is dropped", topic, index)
        return None
    target = (REAL_TOPIC, REAL_QUEUE)
    try:
        block = block_again(
            message,
            topic=topic,
            queue_index=int(index),
            properties={name: v for name, v in message.properties.items() if name not in target},
            store_host=tables.store_host,
            reconsume_times=message.reconsume_times,
        )
    except ProtocolError as error:
        _LOG.error("topic=%s: a delayed message cannot be delivered: %s", topic, error)
        return None
    return tables.store.append(topic, int(index), block, now_ms)
