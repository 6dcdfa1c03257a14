"""Half messages for their sender: how to send one, where it is stored, how to end many."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rocketmq_client.cluster import Cluster
from rocketmq_client.errors import EndOutcomeUnknownError
from rocketmq_client.retry import Retry
from rocketmq_client.retry_schedules import END_HALF_MESSAGE
from rocketmq_wire.errors import (
    BrokerBusyError,
    ConnectError,
    LocalProtocolError,
    RemoteProtocolError,
    RocketMQError,
    TransportError,
)
from rocketmq_wire.model import Message, QueueId
from rocketmq_wire.records.message_id import parse_offset_message_id
from rocketmq_wire.records.record import FLAG_TRANSACTION_PREPARED
from rocketmq_wire.requests.messages import SendMessage, SendReply
from rocketmq_wire.requests.transactions import (
    CHECK_IMMUNITY,
    PRODUCER_GROUP,
    TRANSACTIONAL,
    EndTransaction,
    Resolution,
)

_IN_FLIGHT_MAX: Final = 512
_DELAYED: Final = ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC")


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A stored half message, with all that is needed to end it."""

    group: str
    """The producer group."""
    queue: QueueId
    """The queue of the message after its commit."""
    offset: int
    """The offset in the half topic."""
    position: int
    """The byte position of its record in the broker's log."""
    transaction_id: str
    """The id of the transaction, made by the producer."""
    message_id: str = ""
    """The broker's id of the half message."""

    def end(self, resolution: Resolution) -> EndTransaction:
        return EndTransaction(
            self.group,
            self.offset,
            self.position,
            resolution,
            self.message_id,
            self.transaction_id,
            self.queue.topic,
            broker=self.queue.broker,
        )


def half_message(message: Message, group: str, immunity_seconds: int | None = None) -> Message:
    """Make a half message; the broker asks no producer about it before `immunity_seconds`.

    Raises LocalProtocolError for a delayed message.
    """
    found = [name for name in _DELAYED if name in message.properties]
    if found:
        raise LocalProtocolError(f"a transactional message cannot have the property {found[0]}")
    named = {TRANSACTIONAL: "true", PRODUCER_GROUP: group}
    if immunity_seconds is not None:
        named[CHECK_IMMUNITY] = str(immunity_seconds)
    return replace(message, properties={**message.properties, **named})


def as_half(request: SendMessage) -> SendMessage:
    return replace(request, sys_flag=request.sys_flag | FLAG_TRANSACTION_PREPARED)


def half_of(request: SendMessage, reply: SendReply, unique_key: str) -> HalfMessage:
    """Read where a half message is stored. Raises RemoteProtocolError if the answer has no id."""
    _, position = parse_offset_message_id(reply.message_id)
    # Brokers of 4.9 do not return the transaction's id, which is the unique key.
    key = reply.transaction_id or unique_key
    queue = QueueId(request.queue.topic, request.queue.broker, reply.queue_index)
    return HalfMessage(request.group, queue, reply.start, position, key, reply.message_id)


def end_many(
    cluster: Cluster,
    ends: Sequence[tuple[HalfMessage, Resolution]],
    *,
    in_order: bool = False,
    before_each: Callable[[], None] | None = None,
) -> Iterator[tuple[HalfMessage, RocketMQError | None]]:
    """End half messages, many at once. Yields each with its error, or None.

    A request that the broker certainly did not take is sent again while an outage may last. If it
    may have been taken, it is not: Java brokers would store a second copy (EndOutcomeUnknownError).
    Java brokers end requests that arrive together in any order. So `in_order` ends one a queue at
    a time, and drops a queue at its first error: the rest of it is neither sent nor yielded.
    `before_each` is called before each group of requests.
    """
    pending = _Pending(ends, in_order=in_order)
    retry = Retry(cluster.settings.over_outage(END_HALF_MESSAGE), cluster.clock)
    while some := pending.take():
        if before_each is not None:
            before_each()
        replies = cluster.transport.call_many(
            [(half.queue.broker, half.end(resolution)) for half, resolution in some],
            timeout_ms=cluster.settings.request_timeout_ms,
        )
        again: list[tuple[HalfMessage, Resolution]] = []
        for (half, resolution), reply in zip(some, replies, strict=True):
            is_untaken = isinstance(reply, (ConnectError, BrokerBusyError))
            if is_untaken and not retry.is_over:
                again.append((half, resolution))
                continue
            error = reply if isinstance(reply, RocketMQError) else None
            # An answer that cannot be read says nothing either.
            if isinstance(reply, (TransportError, RemoteProtocolError)) and not is_untaken:
                error = EndOutcomeUnknownError(
                    half.queue, half.transaction_id, resolution, str(reply)
                )
            if error is not None:
                pending.drop(half.queue)
            yield half, error
        if again:
            retry.pause()
            pending.put_back(again)


class _Pending:
    """Half messages to end; one a queue at a time if the order counts."""

    def __init__(self, ends: Sequence[tuple[HalfMessage, Resolution]], *, in_order: bool) -> None:
        self._in_order = in_order
        self._queues: dict[QueueId | None, deque[tuple[HalfMessage, Resolution]]] = {}
        for end in ends:
            self._queues.setdefault(self._key(end), deque()).append(end)

    def take(self) -> list[tuple[HalfMessage, Resolution]]:
        """Take the ones that may be ended now; none if all are done."""
        taken: list[tuple[HalfMessage, Resolution]] = []
        for key, waiting in list(self._queues.items())[:_IN_FLIGHT_MAX]:
            count = 1 if self._in_order else _IN_FLIGHT_MAX
            taken += [waiting.popleft() for _ in range(min(count, len(waiting)))]
            if not waiting:
                del self._queues[key]
        return taken

    def put_back(self, ends: Sequence[tuple[HalfMessage, Resolution]]) -> None:
        for end in reversed(ends):
            self._queues.setdefault(self._key(end), deque()).appendleft(end)

    def drop(self, queue: QueueId) -> None:
        """Drop the rest of a queue behind an error, if the order counts."""
        if self._in_order:
            self._queues.pop(queue, None)

    def _key(self, end: tuple[HalfMessage, Resolution]) -> QueueId | None:
        return end[0].queue if self._in_order else None
