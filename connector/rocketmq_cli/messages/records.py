"""Reads stored messages one by one, for verbs that need few, and gives their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rocketmq_arrow.decode.inflate import inflate
from rocketmq_cli.errors import MessagesGoneError
from rocketmq_cli.terminal.output import Cell, moment
from rocketmq_client.cluster import Cluster
from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_wire.errors import CorruptRecordError, InflateError
from rocketmq_wire.model import BODY_SIZE_MAX, OffsetRange, QueueId, StoredMessage, Subscription
from rocketmq_wire.records.message_id import offset_message_id
from rocketmq_wire.records.properties import KEYS, TAGS, UNIQUE_KEY
from rocketmq_wire.records.record import FLAG_COMPRESSED, decode_record


def require_whole(chunk: RangeChunk, count: int) -> None:
    """Raise MessagesGoneError if a chunk has fewer messages than offsets."""
    if chunk.expected_count is not None and count < chunk.expected_count:
        gone = chunk.expected_count - count
        raise MessagesGoneError(chunk.queue, chunk.start, chunk.end, gone)


def read_messages(
    cluster: Cluster, ranges: Sequence[OffsetRange], group: str
) -> Iterator[tuple[QueueId, StoredMessage]]:
    """Yield every message of the ranges.

    Raises CorruptRecordError, and MessagesGoneError behind the messages around a gap.
    """
    for chunk in cluster.read_ranges(ranges, ReadSpec(group, Subscription())):
        position = count = 0
        while position < len(chunk.body):
            message, position = decode_record(chunk.body, position, where=str(chunk.queue))
            if chunk.start <= message.queue_offset < chunk.end:
                count += 1
                yield chunk.queue, message
        require_whole(chunk, count)


def plain_body(message: StoredMessage) -> bytes:
    """The body as it was sent. Raises CorruptRecordError."""
    if not message.sys_flag & FLAG_COMPRESSED:
        return message.body
    try:
        return inflate(message.body, message.sys_flag, BODY_SIZE_MAX)
    except InflateError as error:
        raise CorruptRecordError("body", 0, str(error)) from error


def message_record(broker: str, message: StoredMessage) -> Mapping[str, Cell]:
    """A message's fields for display."""
    properties = dict(message.properties)
    tags, keys = properties.pop(TAGS, None), properties.pop(KEYS, None)
    try:
        body = plain_body(message).decode("utf-8", "backslashreplace")
    except CorruptRecordError as error:
        body = f"<{error}>"
    offset_id = offset_message_id(message.store_host, message.physical_offset)
    return {
        "topic": message.topic,
        "broker": broker,
        "queue": message.queue_index,
        "offset": message.queue_offset,
        "id": properties.pop(UNIQUE_KEY, offset_id),
        "offsetId": offset_id,
        "tags": tags,
        "keys": keys,
        "born": moment(message.born_ms),
        "stored": moment(message.store_ms),
        "reconsumeTimes": message.reconsume_times,
        "properties": properties,
        "body": body,
    }
