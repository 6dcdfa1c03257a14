"""The bulk service's messages that carry records or bodies <-> typed values.

Only their small fields pass through the protobuf library; see `shapes` for the layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rocketmq_wire.errors import BrokerError, RemoteProtocolError
from rocketmq_wire.grpc.bulk.methods import parse_request
from rocketmq_wire.grpc.bulk.shapes import (
    ONE_PART,
    OPTIONAL_PART,
    PARTS,
    Shape,
    enumerated,
    or_else,
    repeated,
)
from rocketmq_wire.grpc.bulk.values import QUEUE, STATUS, SUBSCRIPTION, status_to_message
from rocketmq_wire.limits import STREAM_RANGES_MAX, STREAM_SIZE_MAX
from rocketmq_wire.model import Buffer, QueueId, Subscription
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullReply,
    PullStatus,
    SendBatch,
    SendMessage,
    SendRecords,
    SendReply,
    SendStatus,
)
from rocketmq_wire.stubs import message_class, serialize


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


PULL_MESSAGES: Final = Shape(
    "PullMessagesRequest", PullMessages, queue=QUEUE, subscription=SUBSCRIPTION
)
PULL_RECORDS: Final = Shape(
    "PullRecordsRequest",
    PullRecords,
    ranges=repeated(Shape("PullRange", PullRange, queue=QUEUE)),
    subscription=SUBSCRIPTION,
)
_CHUNK: Final = Shape(
    "RecordChunk",
    RecordChunk,
    status=enumerated(
        {
            PullStatus.FOUND: 1,
            PullStatus.NO_NEW_MESSAGE: 2,
            PullStatus.NO_MATCHED_MESSAGE: 3,
            PullStatus.OFFSET_ILLEGAL: 4,
        }
    ),
    error=STATUS,
    sizes=OPTIONAL_PART,
    records=PARTS,
)
SEND_MESSAGE: Final = Shape(
    "SendMessageRequest", SendMessage, queue=QUEUE, default_queue_count=or_else(4), body=ONE_PART
)
SEND_BATCH: Final = Shape(
    "SendBatchRequest", SendBatch, queue=QUEUE, default_queue_count=or_else(4), body=ONE_PART
)
SEND_RECORDS: Final = Shape(
    "SendRecordsRequest", SendRecords, queue=QUEUE, sizes=OPTIONAL_PART, records=ONE_PART
)
_SENT: Final = Shape(
    "SendResponse",
    SendReply,
    status=enumerated(
        {
            SendStatus.OK: 1,
            SendStatus.FLUSH_DISK_TIMEOUT: 2,
            SendStatus.SLAVE_NOT_AVAILABLE: 3,
            SendStatus.FLUSH_SLAVE_TIMEOUT: 4,
        }
    ),
)


def decode_pull_records(content: bytes) -> PullRecords:
    """The request of a stream. Raises RemoteProtocolError for impossible ranges and limits."""
    message = parse_request("PullRecords", content, STREAM_SIZE_MAX)
    # Before the ranges become values, which take 0.1 ms each.
    if not 0 < len(message.ranges) <= STREAM_RANGES_MAX:
        raise RemoteProtocolError(
            f"a stream has 1 to {STREAM_RANGES_MAX} ranges, not {len(message.ranges)}"
        )
    request = PULL_RECORDS.from_message(message)
    for part in request.ranges:
        if part.start < 0 or (part.end is not None and part.end < part.start):
            raise RemoteProtocolError(f"not a range: [{part.start}, {part.end}) of {part.queue}")
    if min(request.chunk_size, request.chunk_count_max, request.suspend_ms) < 0:
        raise RemoteProtocolError("a chunk's limits and suspend_ms cannot be negative")
    return request


def encode_chunk(chunk: RecordChunk) -> bytes:
    """One chunk as bytes. The records are copied once, into the result."""
    return _CHUNK.encode(chunk)


def decode_chunk(content: Buffer) -> RecordChunk:
    """One chunk whose records are a view over `content`."""
    message, large = _CHUNK.parse(content)
    chunk = _CHUNK.from_message(message, large)
    if (chunk.status is None) == (chunk.error is None):
        raise RemoteProtocolError(f"a chunk has status {message.status} and error {chunk.error!r}")
    return chunk


def chunk_of_reply(reply: PullReply, *, start: int, range_index: int = 0) -> RecordChunk:
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


def encode_send_outcome(outcome: SendReply | BrokerError) -> bytes:
    """A send's answer or error; a stream continues after an error."""
    if isinstance(outcome, BrokerError):
        return serialize(message_class("SendResponse")(error=status_to_message(outcome)))
    return _SENT.encode(outcome)


def decode_send_outcome(content: Buffer) -> SendReply | BrokerError:
    message, _ = _SENT.parse(content)
    error = STATUS.from_message(message.error)
    if isinstance(error, BrokerError):
        return error
    reply = _SENT.from_message(message)
    if reply.status is None:
        raise RemoteProtocolError(f"a send was answered with status {message.status}")
    return reply
