"""The requests of pop consumption.

A popped message is invisible to other members for a time. If the member does not acknowledge it in
that time, the broker delivers it again through a retry topic of the group. A `ReceiptHandle` names
one delivery.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rocketmq_wire.model import Buffer, QueueId, Subscription
from rocketmq_wire.records.handles import (
    ORDERLY_REVIVE_QUEUE,
    ReceiptHandle,
    RetryKind,
    origin_topic_of,
)
from rocketmq_wire.requests import permissions
from rocketmq_wire.requests.contract import CountReply, Done, R, Reply, Request
from rocketmq_wire.requests.permissions import Resources

POP_COUNT_MAX: Final = 32
"""The limit of messages in one pop: a checkpoint keeps them in the bits of an int."""
ANY_QUEUE: Final = -1
AT_ONCE_MS: Final = 0
"""The least invisible time: the broker delivers the message again as soon as it can."""


class InitMode(enum.Enum):
    """Where a group without a committed offset begins: at the oldest message, or at the end."""

    MIN = 0
    MAX = 1


class PopStatus(enum.Enum):
    """The outcome of a pop; the value is its response code."""

    FOUND = 0
    NOT_FOUND = 19
    POLLING_FULL = 209
    """No message is there, and too many requests wait already."""
    POLLING_TIMEOUT = 210
    """No message came before the deadline."""


@dataclass(frozen=True, slots=True)
class PoppedSpan:
    """The messages that a pop took from one queue, in the order of their records."""

    retry: RetryKind
    queue_index: int
    start: int
    """The first offset that the checkpoint covers."""
    offsets: tuple[int, ...]
    attempts: tuple[int, ...] = ()
    """Orderly: how often each was popped before; else see the records' reconsume times."""


@dataclass(frozen=True, slots=True)
class PopReply(Reply):
    """Whole records, span after span, and the parts of their handles.

    Records from retry topics carry the topic that was popped, and their handle (`POP_CK`).
    """

    status: PopStatus
    pop_ms: int = 0
    invisible_ms: int = 0
    revive_queue: int = 0
    rest_count: int = 0
    """An estimate of the messages left in the queues that were read."""
    spans: tuple[PoppedSpan, ...] = ()
    records: tuple[Buffer, ...] = ()
    """Stored records back to back; the parts follow each other. A client always gets one part."""
    sizes: Buffer | None = field(default=None, compare=False)
    """Little-endian int32 sizes of the records; only set inside the broker."""
    remark: str = ""

    def handles(self, broker: str) -> tuple[ReceiptHandle, ...]:
        """The handle of every record, in their order."""
        pop_ms, invisible_ms, revive_queue = self.pop_ms, self.invisible_ms, self.revive_queue
        handles: list[ReceiptHandle] = []
        for span in self.spans:
            start, retry, index = span.start, span.retry, span.queue_index
            handles += [
                ReceiptHandle(
                    start, pop_ms, invisible_ms, revive_queue, retry, broker, index, offset
                )
                for offset in span.offsets
            ]
        return tuple(handles)


@dataclass(frozen=True, slots=True)
class PopRequest(Request[R]):
    """Base of requests that a group's member sends about a queue that it pops."""

    group: str
    queue: QueueId
    """The queue of a request about one message is the one that holds it, also of a retry topic."""

    def resources(self) -> Resources:
        """The topic that is popped and the group: a right to both covers the retry topic of both.

        A right to a parent topic covers its light queues.
        """
        topic = origin_topic_of(self.queue.topic, self.group)
        return permissions.resources_of((topic,), (self.group,))


@dataclass(frozen=True, slots=True)
class PopMessages(PopRequest[PopReply]):
    """200050: pop up to `count_max` messages of a queue or of all (`ANY_QUEUE`), with retries.

    Raises BrokerError: 1, 16, 17, 23, 26, 29.
    """

    access = permissions.CONSUME
    count_max: int
    invisible_ms: int
    poll_ms: int = 0
    """How long the broker may hold the request, from `born_ms` on; 0: not at all."""
    born_ms: int = 0
    """The time at which the client made the request; 0: at which it arrived."""
    init_mode: InitMode = InitMode.MIN
    subscription: Subscription = field(default_factory=Subscription)
    is_orderly: bool = False
    """True stops a queue until its popped messages are acknowledged or visible again."""
    attempt_id: str = ""
    """Orderly: a request with the same id gets the same messages again."""


@dataclass(frozen=True, slots=True)
class PeekMessages(PopRequest[PopReply]):
    """200052: read messages without popping them."""

    access = permissions.CONSUME
    count_max: int


@dataclass(frozen=True, slots=True)
class AckMessage(PopRequest[Done]):
    """200051: acknowledge a popped message. Raises BrokerError: 13, 17, 208."""

    access = permissions.CONSUME
    offset: int
    handle: str


@dataclass(frozen=True, slots=True)
class AckSpan:
    """Acknowledged messages of one checkpoint."""

    group: str
    topic: str
    """The popped topic, also for messages from its retry topic."""
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
    """200151: acknowledge popped messages of one broker, which ignores those it does not know.

    Brokers before 5.1.3 do not know it.
    """

    access = permissions.CONSUME
    broker: str
    spans: tuple[AckSpan, ...]

    def resources(self) -> Resources:
        """The topics that were popped, and the groups."""
        topics = (span.topic for span in self.spans)
        return permissions.resources_of(topics, (span.group for span in self.spans))


@dataclass(frozen=True, slots=True)
class InvisibleTimeReply(Reply):
    """The parts of the new handle."""

    pop_ms: int
    invisible_ms: int
    revive_queue: int

    def handle_after(self, old: ReceiptHandle) -> ReceiptHandle:
        return old._replace(
            start=old.offset,
            pop_ms=self.pop_ms,
            invisible_ms=self.invisible_ms,
            revive_queue=self.revive_queue,
        )


@dataclass(frozen=True, slots=True)
class ChangeInvisibleTime(PopRequest[InvisibleTimeReply]):
    """200053: make a popped message visible again after another time, counted from now.

    Raises BrokerError: 1, 13, 17, 208.
    """

    access = permissions.CONSUME
    # A repeated request would leave two checkpoints, and the broker would deliver twice.
    repeatable = False
    offset: int
    handle: str
    invisible_ms: int


@dataclass(frozen=True, slots=True)
class AwaitMessagesReply(Reply):
    """True if a pop would find a message now."""

    has_message: bool
    is_polling_full: bool = False


@dataclass(frozen=True, slots=True)
class AwaitMessages(PopRequest[AwaitMessagesReply]):
    """200054: wait until a pop would find a message, without popping it."""

    access = permissions.CONSUME
    poll_ms: int = 0
    born_ms: int = 0
    is_orderly: bool = False
    attempt_id: str = ""


@dataclass(frozen=True, slots=True)
class GetPollingCount(PopRequest[CountReply]):
    """200055: count the pops of a group that wait for a queue."""

    access = permissions.CONSUME


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
