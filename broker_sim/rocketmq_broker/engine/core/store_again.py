"""A stored message -> the block that stores it once more, elsewhere: for retries and delays."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from rocketmq_arrow.encode.record_block import RecordBlock, block_from_message
from rocketmq_broker.engine.core.topics import Topics, is_group_topic
from rocketmq_broker.storage.settings import Appended
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import ProtocolError
from rocketmq_wire.model import Host, StoredMessage
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.records.record import FLAG_BORN_HOST_V6, FLAG_STORE_HOST_V6

_LOG = logging.getLogger(__name__)

REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE: Final = "REAL_QID"
UNREADABLE_PAUSE_MS: Final = 60_000
"""How long what cannot be read is left alone: damage stays until somebody repairs it."""
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
    """The same body, flags and birth in another queue. Raises LocalProtocolError."""
    return block_from_message(
        topic=topic,
        queue_index=queue_index,
        body=message.body,
        properties=encode_properties(properties),
        flag=message.flag,
        # The bits say how wide the hosts are, and the store host may be another one now.
        sys_flag=message.sys_flag & ~_V6_BITS,
        born_ms=message.born_ms,
        born_host=message.born_host,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
    )


def deliver(
    message: StoredMessage, now_ms: int, *, store: Store, topics: Topics, store_host: Host
) -> Appended | None:
    """Store a message that waited where it was meant to go; None, said in the log, for nowhere.

    As in RocketMQ its level or times stay among the properties; nothing looks at them any more.
    """
    topic = message.properties.get(REAL_TOPIC, "")
    index = message.properties.get(REAL_QUEUE, "0")
    is_known = topics.get(topic) is not None or is_group_topic(topic)
    if not is_known or not index.isdecimal():
        _LOG.warning("topic=%s queue=%s is gone: a delayed message is dropped", topic, index)
        return None
    named = (REAL_TOPIC, REAL_QUEUE)
    properties = {name: v for name, v in message.properties.items() if name not in named}
    try:
        block = block_again(
            message,
            topic=topic,
            queue_index=int(index),
            properties=properties,
            store_host=store_host,
            reconsume_times=message.reconsume_times,
        )
    except ProtocolError as error:
        _LOG.error("topic=%s: a delayed message cannot be delivered: %s", topic, error)
        return None
    return store.append(topic, int(index), block, now_ms)
