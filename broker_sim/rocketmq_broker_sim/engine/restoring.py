"""A stored message -> the block that stores it once more, elsewhere: for retries and delays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketmq_arrow.blocks import RecordBlock, block_from_message
from rocketmq_wire.model import Host, StoredMessage
from rocketmq_wire.properties import encode_properties

_V6_BITS: Final = 0x30


def block_again(
    message: StoredMessage,
    *,
    topic: str,
    queue_index: int,
    properties: Mapping[str, str],
    store_host: Host,
    reconsume_times: int,
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
    )
