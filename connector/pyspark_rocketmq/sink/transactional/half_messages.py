"""Half messages as compressed Arrow: from tasks to the driver, and in the parts of decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from rocketmq_client.producer.half_messages import HalfMessage
from rocketmq_wire.model import QueueId

HALF_MESSAGE_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("broker", pa.string()),
        pa.field("queue", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("position", pa.int64()),
        pa.field("key", pa.string()),
    ]
)


def pack_half_messages(half_messages: Sequence[HalfMessage]) -> bytes:
    columns: list[list[object]] = [
        [half.queue.topic for half in half_messages],
        [half.queue.broker for half in half_messages],
        [half.queue.index for half in half_messages],
        [half.offset for half in half_messages],
        [half.position for half in half_messages],
        [half.transaction_id for half in half_messages],
    ]
    batch = pa.record_batch(columns, schema=HALF_MESSAGE_SCHEMA)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, HALF_MESSAGE_SCHEMA, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpack_half_messages(data: bytes, group: str) -> list[HalfMessage]:
    with pa.ipc.open_stream(data) as reader:
        columns = reader.read_all().to_pydict()
    return [
        HalfMessage(group, QueueId(topic, broker, queue), offset, position, key)
        for topic, broker, queue, offset, position, key in zip(*columns.values(), strict=True)
    ]
