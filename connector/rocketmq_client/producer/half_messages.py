"""Half messages as their sender sees them: how one is sent, where it lies, how many are ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rocketmq_client.cluster import Cluster
from rocketmq_client.retry import END_HALF_MESSAGE, Retry
from rocketmq_wire.errors import (
    BrokerBusyError,
    ConnectError,
    LocalProtocolError,
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


class EndOutcomeUnknownError(RocketMQError):
    """The transaction may or may not be ended: the answer was lost."""

    def __init__(self, half: HalfMessage, resolution: Resolution, reason: str) -> None:
        super().__init__(half, resolution, reason)
        self.half, self.resolution, self.reason = half, resolution, reason

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_TRANSACTION.OUTCOME_UNKNOWN] {self.half.queue}: transaction "
            f"{self.half.transaction_id} may or may not have had its {self.resolution.name}: "
            f"{self.reason}. The broker asks the producer group about it, should it be open."
        )


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message that a broker holds: all that ends it."""

    group: str
    queue: QueueId
    """Where the message goes when it is committed."""
    offset: int
    """In the half topic."""
    position: int
    """Of its record in the broker's log."""
    transaction_id: str
    message_id: str = ""

    def end(self, resolution: Resolution, *, is_from_check: bool = False) -> EndTransaction:
        """The request that ends it."""
        return EndTransaction(
            self.group,
            self.offset,
            self.position,
            resolution,
            self.message_id,
            self.transaction_id,
            self.queue.topic,
            is_from_check,
            self.queue.broker,
        )


def half_message(message: Message, group: str, immunity_seconds: int | None = None) -> Message:
    """The message as a half one; nobody is asked about it for so long after its birth.

    Raises LocalProtocolError for one that is to be delivered later.
    """
    late = [name for name in _DELAYED if name in message.properties]
    if late:
        raise LocalProtocolError(f"a transactional message cannot have the property {late[0]}")
    named = {TRANSACTIONAL: "true", PRODUCER_GROUP: group}
    if immunity_seconds is not None:
        named[CHECK_IMMUNITY] = str(immunity_seconds)
    return replace(message, properties={**message.properties, **named})


def as_half(request: SendMessage) -> SendMessage:
    """The request of a half message."""
    return replace(request, sys_flag=request.sys_flag | FLAG_TRANSACTION_PREPARED)


def half_of(request: SendMessage, reply: SendReply, unique_key: str) -> HalfMessage:
    """Where a half message lies. Raises RemoteProtocolError for an answer that does not say so."""
    _, position = parse_offset_message_id(reply.message_id)
    # Brokers of 4.9 do not repeat the transaction's id, which is the unique key.
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
    """End half messages, many at once: each with why it is not known to be ended, or None.

    What a broker certainly did not take is tried again for as long as an outage may last. What it
    may have taken is not: brokers of Java would make a second copy (`EndOutcomeUnknownError`).
    They also end in any order what comes at once: `in_order` ends one a queue at a time, and leaves
    a queue at its first failure. What was behind that is not tried, and not yielded.
    `before_each` is called before some are sent, again and again.
    """
    line = _Line(ends, in_order=in_order)
    retry = Retry(cluster.settings.over_outage(END_HALF_MESSAGE), cluster.clock)
    while some := line.take():
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
            if isinstance(reply, TransportError) and not is_untaken:
                error = EndOutcomeUnknownError(half, resolution, str(reply))
            if error is not None:
                line.leave(half.queue)
            yield half, error
        if again:
            retry.pause()
            line.put_back(again)


class _Line:
    """What is to be ended; one a queue at a time when the order counts."""

    def __init__(self, ends: Sequence[tuple[HalfMessage, Resolution]], *, in_order: bool) -> None:
        self._in_order = in_order
        self._queues: dict[QueueId | None, deque[tuple[HalfMessage, Resolution]]] = {}
        for end in ends:
            self._queues.setdefault(self._key(end), deque()).append(end)

    def take(self) -> list[tuple[HalfMessage, Resolution]]:
        """What may be ended at once now; empty when nothing is left."""
        taken: list[tuple[HalfMessage, Resolution]] = []
        for key, waiting in list(self._queues.items())[:_IN_FLIGHT_MAX]:
            count = 1 if self._in_order else _IN_FLIGHT_MAX
            taken += [waiting.popleft() for _ in range(min(count, len(waiting)))]
            if not waiting:
                del self._queues[key]
        return taken

    def put_back(self, ends: Sequence[tuple[HalfMessage, Resolution]]) -> None:
        """They are to be tried again, before those behind them."""
        for end in reversed(ends):
            self._queues.setdefault(self._key(end), deque()).appendleft(end)

    def leave(self, queue: QueueId) -> None:
        """A queue's order counts and one could not be ended: those behind it are not tried."""
        if self._in_order:
            self._queues.pop(queue, None)

    def _key(self, end: tuple[HalfMessage, Resolution]) -> QueueId | None:
        return end[0].queue if self._in_order else None
