"""The bulk service's messages that carry records or bodies <-> typed values.

Only their small fields pass through the protobuf library; see `fields` for the layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_wire.errors import BrokerError, RemoteProtocolError
from rocketmq_wire.grpc.bulk.fields import (
    BODY_FIELD,
    SIZES_FIELD,
    join_fields,
    split_fields,
)
from rocketmq_wire.grpc.bulk.values import (
    PULL_STATUS_NUMBERS,
    PULL_STATUSES,
    SEND_STATUS_NUMBERS,
    SEND_STATUSES,
    error_from_status,
    optional,
    queue_from_message,
    queue_to_message,
    status_to_message,
    subscription_from_message,
    subscription_to_message,
)
from rocketmq_wire.model import Buffer, QueueId, Subscription
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullReply,
    PullStatus,
    SendBatch,
    SendMessage,
    SendRecords,
    SendReply,
)
from rocketmq_wire.stubs import message_class, parse, serialize

RANGES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """Whole records of `[start, end)` of a queue, or the reason why there are none."""

    start: int
    end: int
    status: PullStatus | None = PullStatus.FOUND
    """None only beside an error."""
    queue_start: int = 0
    queue_end: int = 0
    range_index: int = 0
    records: tuple[Buffer, ...] = ()
    sizes: Buffer | None = None
    error: BrokerError | None = None
    remark: str = ""
    suggested_broker_id: int = 0

    @property
    def ends_range(self) -> bool:
        """True if this chunk is the last one of its range."""
        return self.status not in (PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE)


@dataclass(frozen=True, slots=True)
class PullRange:
    """The offsets to stream; without an end, up to the end of the queue."""

    queue: QueueId
    start: int
    end: int | None = None


@dataclass(frozen=True, slots=True)
class PullRecords:
    """The request of a stream of ranges; without a single reply, it is no `Request`."""

    group: str
    ranges: tuple[PullRange, ...]
    subscription: Subscription
    chunk_size: int = 0
    chunk_count_max: int = 0
    suspend_ms: int = 0


# --- reading --------------------------------------------------------------------------------


def encode_pull(request: PullMessages) -> bytes:
    message = message_class("PullMessagesRequest")(
        group=request.group,
        queue=queue_to_message(request.queue),
        start=request.start,
        count_max=request.count_max,
        bytes_max=request.bytes_max,
        subscription=subscription_to_message(request.subscription),
        subscription_version=request.subscription_version,
        uses_registered_subscription=request.uses_registered_subscription,
        commit=request.commit,
        suspend_ms=request.suspend_ms,
    )
    return serialize(message)


def decode_pull(content: bytes) -> PullMessages:
    message = parse("PullMessagesRequest", content)
    return PullMessages(
        group=message.group,
        queue=queue_from_message(message.queue),
        start=message.start,
        count_max=message.count_max,
        bytes_max=optional(message, "bytes_max"),
        subscription=subscription_from_message(message.subscription),
        subscription_version=message.subscription_version,
        uses_registered_subscription=message.uses_registered_subscription,
        commit=optional(message, "commit"),
        suspend_ms=optional(message, "suspend_ms"),
    )


def encode_pull_records(request: PullRecords) -> bytes:
    """The request of a stream of ranges."""
    pull_range = message_class("PullRange")
    message = message_class("PullRecordsRequest")(
        group=request.group,
        ranges=[
            pull_range(queue=queue_to_message(part.queue), start=part.start, end=part.end)
            for part in request.ranges
        ],
        subscription=subscription_to_message(request.subscription),
        chunk_size=request.chunk_size,
        chunk_count_max=request.chunk_count_max,
        suspend_ms=request.suspend_ms,
    )
    return serialize(message)


def decode_pull_records(content: bytes) -> PullRecords:
    """The request of a stream. Raises RemoteProtocolError for impossible ranges and limits."""
    message = parse("PullRecordsRequest", content)
    if not 0 < len(message.ranges) <= RANGES_MAX:
        raise RemoteProtocolError(
            f"a stream has 1 to {RANGES_MAX} ranges, not {len(message.ranges)}"
        )
    ranges = tuple(
        PullRange(queue_from_message(part.queue), part.start, optional(part, "end"))
        for part in message.ranges
    )
    for part in ranges:
        if part.start < 0 or (part.end is not None and part.end < part.start):
            raise RemoteProtocolError(f"not a range: [{part.start}, {part.end}) of {part.queue}")
    if min(message.chunk_size, message.chunk_count_max, message.suspend_ms) < 0:
        raise RemoteProtocolError("a chunk's limits and suspend_ms cannot be negative")
    return PullRecords(
        group=message.group,
        ranges=ranges,
        subscription=subscription_from_message(message.subscription),
        chunk_size=message.chunk_size,
        chunk_count_max=message.chunk_count_max,
        suspend_ms=message.suspend_ms,
    )


def encode_chunk(chunk: RecordChunk) -> bytes:
    """One chunk as bytes. The records are copied once, into the result."""
    message = message_class("RecordChunk")(
        range_index=chunk.range_index,
        start=chunk.start,
        end=chunk.end,
        status=0 if chunk.status is None else PULL_STATUS_NUMBERS[chunk.status],
        queue_start=chunk.queue_start,
        queue_end=chunk.queue_end,
        error=None if chunk.error is None else status_to_message(chunk.error),
        remark=chunk.remark,
        suggested_broker_id=chunk.suggested_broker_id,
    )
    large: dict[int, Sequence[Buffer]] = {BODY_FIELD: chunk.records}
    if chunk.sizes is not None:
        large = {SIZES_FIELD: (chunk.sizes,), BODY_FIELD: chunk.records}
    return join_fields(serialize(message), large)


def decode_chunk(content: Buffer) -> RecordChunk:
    """One chunk whose records are a view over `content`."""
    small, large = split_fields(content)
    message = parse("RecordChunk", small)
    status = PULL_STATUSES.get(message.status)
    error = error_from_status(message.error)
    if (status is None) == (error is None):
        raise RemoteProtocolError(f"a chunk has status {message.status} and error {error!r}")
    records, sizes = large.get(BODY_FIELD), large.get(SIZES_FIELD)
    return RecordChunk(
        start=message.start,
        end=message.end,
        status=status,
        queue_start=message.queue_start,
        queue_end=message.queue_end,
        range_index=message.range_index,
        records=() if records is None else (records,),
        sizes=sizes,
        error=error,
        remark=message.remark,
        suggested_broker_id=message.suggested_broker_id,
    )


def chunk_of_reply(reply: PullReply, *, start: int, range_index: int = 0) -> RecordChunk:
    """A pull's answer as a chunk."""
    return RecordChunk(
        start=start,
        end=reply.next_begin,
        status=reply.status,
        queue_start=reply.start,
        queue_end=reply.end,
        range_index=range_index,
        records=reply.records,
        sizes=reply.sizes,
        remark=reply.remark,
        suggested_broker_id=reply.suggested_broker_id,
    )


def reply_of_chunk(chunk: RecordChunk) -> PullReply:
    """A chunk as a pull's answer. Raises the chunk's error."""
    if chunk.status is None:
        raise chunk.error or RemoteProtocolError("a chunk has neither status nor error")
    return PullReply(
        status=chunk.status,
        next_begin=chunk.end,
        start=chunk.queue_start,
        end=chunk.queue_end,
        records=chunk.records,
        sizes=chunk.sizes,
        suggested_broker_id=chunk.suggested_broker_id,
        remark=chunk.remark,
    )


# --- writing --------------------------------------------------------------------------------


def _fields_of_send(request: SendMessage | SendBatch) -> dict[str, Any]:
    return {
        "group": request.group,
        "queue": queue_to_message(request.queue),
        "born_ms": request.born_ms,
        "properties": request.properties,
        "flag": request.flag,
        "sys_flag": request.sys_flag,
        "default_queue_count": request.default_queue_count,
    }


def _send_of_fields(message: Any, large: Mapping[int, Buffer]) -> dict[str, Any]:
    return {
        "group": message.group,
        "queue": queue_from_message(message.queue),
        "born_ms": message.born_ms,
        "body": large.get(BODY_FIELD, b""),
        "properties": message.properties,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "default_queue_count": message.default_queue_count or 4,
    }


def encode_send_message(request: SendMessage) -> bytes:
    message = message_class("SendMessageRequest")(
        **_fields_of_send(request),
        reconsume_times=request.reconsume_times,
        reconsume_times_max=request.reconsume_times_max,
    )
    return join_fields(serialize(message), {BODY_FIELD: (request.body,)})


def decode_send_message(content: Buffer) -> SendMessage:
    small, large = split_fields(content)
    message = parse("SendMessageRequest", small)
    return SendMessage(
        **_send_of_fields(message, large),
        reconsume_times=message.reconsume_times,
        reconsume_times_max=optional(message, "reconsume_times_max"),
    )


def encode_send_batch(request: SendBatch) -> bytes:
    message = message_class("SendBatchRequest")(**_fields_of_send(request))
    return join_fields(serialize(message), {BODY_FIELD: (request.body,)})


def decode_send_batch(content: Buffer) -> SendBatch:
    small, large = split_fields(content)
    return SendBatch(**_send_of_fields(parse("SendBatchRequest", small), large))


def encode_send_records(request: SendRecords) -> bytes:
    message = message_class("SendRecordsRequest")(
        group=request.group, queue=queue_to_message(request.queue)
    )
    large: dict[int, Sequence[Buffer]] = {BODY_FIELD: (request.records,)}
    if request.sizes is not None:
        large = {SIZES_FIELD: (request.sizes,), BODY_FIELD: (request.records,)}
    return join_fields(serialize(message), large)


def decode_send_records(content: Buffer) -> SendRecords:
    small, large = split_fields(content)
    message = parse("SendRecordsRequest", small)
    return SendRecords(
        group=message.group,
        queue=queue_from_message(message.queue),
        records=large.get(BODY_FIELD, b""),
        sizes=large.get(SIZES_FIELD),
    )


def encode_send_outcome(outcome: SendReply | BrokerError) -> bytes:
    """A send's answer or error; a stream continues after an error."""
    response = message_class("SendResponse")
    if isinstance(outcome, BrokerError):
        return serialize(response(error=status_to_message(outcome)))
    return serialize(
        response(
            status=SEND_STATUS_NUMBERS[outcome.status],
            message_id=outcome.message_id,
            queue_index=outcome.queue_index,
            start=outcome.start,
            count=outcome.count,
            transaction_id=outcome.transaction_id,
        )
    )


def decode_send_outcome(content: Buffer) -> SendReply | BrokerError:
    message = parse("SendResponse", content)
    error = error_from_status(message.error)
    if error is not None:
        return error
    status = SEND_STATUSES.get(message.status)
    if status is None:
        raise RemoteProtocolError(f"a send was answered with status {message.status}")
    return SendReply(
        status=status,
        message_id=message.message_id,
        queue_index=message.queue_index,
        start=message.start,
        transaction_id=optional(message, "transaction_id"),
        count=message.count,
    )
