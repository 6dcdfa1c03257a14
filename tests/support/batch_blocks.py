"""One batch body -> the block of records that the broker stores."""

from __future__ import annotations

from rocketmq_arrow.encode.record_block import BatchPart, RecordBlock, block_from_batches
from rocketmq_wire.model import Buffer, Host


def block_from_batch(
    body: Buffer,
    *,
    topic: str,
    queue_index: int,
    born_ms: int,
    born_host: Host,
    store_host: Host,
    sys_flag: int,
) -> RecordBlock:
    """A block of the messages of one batch."""
    part = BatchPart(body, queue_index, born_ms, born_host, sys_flag)
    return block_from_batches([part], topic=topic, store_host=store_host)[0]
