"""The requests of pop consumption: the broker lends messages out, and keeps who has which.

A popped message is invisible to others for a time. Acknowledged in that time it is done; else it
comes again, by a retry topic of the group. `pop_handles` has the receipt that names a delivery.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from rocketmq_wire.model import Buffer, QueueId, Subscription
from rocketmq_wire.records.handles import (
    ORDERLY_REVIVE_QUEUE,
    ReceiptHandle,
    RetryKind,
    origin_topic_of,
)
from rocketmq_wire.requests.contract import Done, R, Reply, Request
from rocketmq_wire.requests.permissions import (
    CONSUME,
    AccessRight,
    Resources,
    plain_topics,
    unique,
)

POP_COUNT_MAX: Final = 32
"""The most messages of one pop: a checkpoint keeps them in the bits of an int."""
ANY_QUEUE: Final = -1
AT_ONCE_MS: Final = 0
"""The least invisible time: the message is to be had again as soon as the broker gets to it."""


class InitMode(enum.Enum):
    """Where a group without progress begins: at the oldest message, or behind the newest."""

    MIN = 0
    MAX = 1


class PopStatus(enum.Enum):
    """What became of a pop; the value is its response code."""

    FOUND = 0
    NOT_FOUND = 19
    POLLING_FULL = 209
    """Nothing is there, and too many wait already."""
    POLLING_TIMEOUT = 210
    """Nothing came in the time that was given."""


@dataclass(frozen=True, slots=True)
class PoppedSpan:
    """What a pop took from one queue; its records stand in this order."""

    retry: RetryKind
    queue_index: int
    start: int
    """The first offset that the checkpoint covers."""
    offsets: tuple[int, ...]
    attempts: tuple[int, ...] = ()
    """Orderly: how often each was popped before. Else the records' reconsume times say it."""


@dataclass(frozen=True, slots=True)
class PopReply(Reply):
    """Whole records, span after span, and what their handles are made of.

    Records from retry topics carry the topic that was popped, and their handle (`POP_CK`).
    """

    status: PopStatus
    pop_ms: int = 0
    invisible_ms: int = 0
    revive_queue: int = 0
    rest_count: int = 0
    """An estimate of how many more wait in the queues that were looked at."""
    spans: tuple[PoppedSpan, ...] = ()
    records: tuple[Buffer, ...] = ()
    """Stored records back to back; the parts follow each other. A client always gets one part."""
    sizes: Buffer | None = field(default=None, compare=False)
    """Little-endian int32 sizes of the records; only the broker itself knows them."""
    remark: str = ""

    def handles(self, broker: str) -> tuple[ReceiptHandle, ...]:
        """The handle of every record, in their order."""
        pop_ms, invisible_ms, revive_queue = self.pop_ms, self.invisible_ms, self.revive_queue
        handles: list[ReceiptHandle] = []
        for start, retry, index, offsets in (
            (span.start, span.retry, span.queue_index, span.offsets) for span in self.spans
        ):
            handles += [
                ReceiptHandle(
                    start, pop_ms, invisible_ms, revive_queue, retry, broker, index, offset
                )
                for offset in offsets
            ]
        return tuple(handles)


class PopRequest(Request[R]):
    """Base of requests of a group's member about one queue that it pops."""

    __slots__ = ()
    group: str
    queue: QueueId

    def resources(self) -> Resources:
        """The topic that is popped and the group: a right to both covers the retry topic of both.

        A right to a parent topic covers its light queues.
        """
        topic = origin_topic_of(self.queue.topic, self.group)
        return Resources(plain_topics((topic,)), (self.group,))


@dataclass(frozen=True, slots=True)
class PopMessages(PopRequest[PopReply]):
    """200050: lend up to `count_max` messages of a queue, or of any (`ANY_QUEUE`), with retries.

    Raises BrokerError: 1, 16, 17, 23, 26, 29.
    """

    access: ClassVar[AccessRight] = CONSUME
    group: str
    queue: QueueId
    count_max: int
    invisible_ms: int
    poll_ms: int = 0
    """How long the broker may hold the request, from `born_ms` on; 0: not at all."""
    born_ms: int = 0
    """When the request was made; 0: when it arrived."""
    init_mode: InitMode = InitMode.MIN
    subscription: Subscription = field(default_factory=Subscription)
    is_orderly: bool = False
    """Nothing more of a queue until what was popped of it is acknowledged or visible again."""
    attempt_id: str = ""
    """Orderly: a request with the same id gets the same messages again."""


@dataclass(frozen=True, slots=True)
class PeekMessages(PopRequest[PopReply]):
    """200052: look at messages without borrowing them; nothing changes."""

    access: ClassVar[AccessRight] = CONSUME
    group: str
    queue: QueueId
    count_max: int


@dataclass(frozen=True, slots=True)
class AckMessage(PopRequest[Done]):
    """200051: a popped message is consumed. Raises BrokerError: 13, 17, 208."""

    access: ClassVar[AccessRight] = CONSUME
    group: str
    queue: QueueId
    """The queue that holds the message: of the retry topic, where it came from there."""
    offset: int
    handle: str


@dataclass(frozen=True, slots=True)
class AckSpan:
    """Messages of one checkpoint that are consumed."""

    group: str
    topic: str
    """The topic that was popped, also where the messages came from its retry topic."""
    retry: RetryKind
    queue_index: int
    revive_queue: int
    start: int
    pop_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]

    @property
    def stored_topic(self) -> str:
        """The topic that holds the messages."""
        return self.retry.topic_of(self.topic, self.group)

    @property
    def is_orderly(self) -> bool:
        return self.revive_queue == ORDERLY_REVIVE_QUEUE


@dataclass(frozen=True, slots=True)
class AckMessages(Request[Done]):
    """200151: many popped messages of one broker are consumed; those it does not know are passed.

    Brokers before 5.1.3 do not know it.
    """

    access: ClassVar[AccessRight] = CONSUME
    broker: str
    spans: tuple[AckSpan, ...]

    def resources(self) -> Resources:
        """The topics that were popped, and the groups."""
        topics = plain_topics(span.topic for span in self.spans)
        return Resources(topics, unique(span.group for span in self.spans))


@dataclass(frozen=True, slots=True)
class InvisibleTimeReply(Reply):
    """What the new handle is made of."""

    pop_ms: int
    invisible_ms: int
    revive_queue: int

    def handle_after(self, old: ReceiptHandle) -> ReceiptHandle:
        """The handle that counts from now on; the old one is void."""
        return ReceiptHandle(
            start=old.offset,
            pop_ms=self.pop_ms,
            invisible_ms=self.invisible_ms,
            revive_queue=self.revive_queue,
            retry=old.retry,
            broker=old.broker,
            queue_index=old.queue_index,
            offset=old.offset,
            position=old.position,
        )


@dataclass(frozen=True, slots=True)
class ChangeInvisibleTime(PopRequest[InvisibleTimeReply]):
    """200053: have a popped message come again at another time, counted from now.

    Raises BrokerError: 1, 13, 17, 208.
    """

    access: ClassVar[AccessRight] = CONSUME
    # A second one would leave two checkpoints, and the message would come twice.
    repeatable: ClassVar[bool] = False
    group: str
    queue: QueueId
    offset: int
    handle: str
    invisible_ms: int


@dataclass(frozen=True, slots=True)
class AwaitMessagesReply(Reply):
    """Whether a pop would find something now."""

    has_message: bool
    is_polling_full: bool = False


@dataclass(frozen=True, slots=True)
class AwaitMessages(PopRequest[AwaitMessagesReply]):
    """200054: wait until a pop would find something, borrowing nothing."""

    access: ClassVar[AccessRight] = CONSUME
    group: str
    queue: QueueId
    poll_ms: int = 0
    born_ms: int = 0
    is_orderly: bool = False
    attempt_id: str = ""


@dataclass(frozen=True, slots=True)
class PollingCountReply(Reply):
    count: int


@dataclass(frozen=True, slots=True)
class GetPollingCount(PopRequest[PollingCountReply]):
    """200055: how many pops of a group are waiting for a queue."""

    access: ClassVar[AccessRight] = CONSUME
    group: str
    queue: QueueId


def ack_of(group: str, topic: str, handle: str) -> AckMessage:
    """The acknowledgement of one message popped for `topic`. Raises RemoteProtocolError."""
    parsed = ReceiptHandle.parse(handle)
    stored = parsed.retry.topic_of(topic, group)
    return AckMessage(
        group, QueueId(stored, parsed.broker, parsed.queue_index), parsed.offset, handle
    )


def change_of(group: str, topic: str, handle: str, invisible_ms: int) -> ChangeInvisibleTime:
    """Another invisible time for a message popped for `topic`. Raises RemoteProtocolError."""
    ack = ack_of(group, topic, handle)
    return ChangeInvisibleTime(group, ack.queue, ack.offset, handle, invisible_ms)


def ack_spans(group: str, handles: Iterable[tuple[str, ReceiptHandle]]) -> tuple[AckSpan, ...]:
    """(topic popped, handle) pairs of one broker, joined by checkpoint."""
    spans: dict[tuple[object, ...], tuple[str, ReceiptHandle, list[int]]] = {}
    for topic, handle in handles:
        # The rest of a handle is the same for all of a checkpoint.
        key = (topic, handle.start, handle.pop_ms, handle.queue_index, handle.retry)
        span = spans.get(key)
        if span is None:
            span = spans[key] = (topic, handle, [])
        span[2].append(handle.offset)
    return tuple(
        AckSpan(
            group=group,
            topic=topic,
            retry=handle.retry,
            queue_index=handle.queue_index,
            revive_queue=handle.revive_queue,
            start=handle.start,
            pop_ms=handle.pop_ms,
            invisible_ms=handle.invisible_ms,
            offsets=tuple(sorted(set(offsets))),
        )
        for topic, handle, offsets in spans.values()
    )
