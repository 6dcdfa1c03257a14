"""The simple pop consumer: messages are asked for, acknowledged, or asked to come again later.

    with open_cluster(connection) as cluster:
        with PopConsumer(cluster, "group", "orders") as consumer:
            for popped in consumer.receive(wait_ms=10_000):
                consumer.ack([popped])

Nobody shares queues here: any number of consumers pop, and the brokers keep who has which message.
At least once: what is not acknowledged in its invisible time comes again. What was received and not
dealt with at the end is handed back, so that others get it at once.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_client.cluster import Cluster
from rocketmq_client.consumer.common.context_manager import ConsumerContext
from rocketmq_client.consumer.popping.messages import Popped, popped_messages
from rocketmq_wire.errors import RocketMQError, UnsupportedRequestError
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.model import MASTER_ID, QueueId, Subscription
from rocketmq_wire.records.handles import ReceiptHandle
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.pop import (
    ANY_QUEUE,
    AT_ONCE_MS,
    POP_COUNT_MAX,
    AckMessage,
    AckMessages,
    ChangeInvisibleTime,
    InitMode,
    InvisibleTimeReply,
    PopMessages,
    PopReply,
    PopStatus,
    ack_of,
    ack_spans,
    change_of,
)

_LOG = logging.getLogger(__name__)

_GRACE_MS: Final = 10_000
_HELD_MAX: Final = 100_000
"""What is remembered to be handed back: others come again when their time is over."""
_WAIT_SLICE_MS: Final = 1_000
"""With several brokers, how long one is waited for before the next is asked."""


@dataclass(frozen=True, slots=True)
class PoppedRecords:
    """A pop's answer as it came: whole records, and their handles in the same order."""

    topic: str
    broker: str
    records: bytes
    handles: tuple[ReceiptHandle, ...]
    reply: PopReply


class PopConsumer(ConsumerContext):
    """Pops one topic for one group. One owner at a time; every call waits for a bounded time."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topic: str,
        *,
        subscription: Subscription | None = None,
        invisible_ms: int = 60_000,
        init_mode: InitMode = InitMode.MIN,
        route_ms: int = 30_000,
    ) -> None:
        """`route_ms`: how often the brokers of the topic are asked for."""
        self._cluster, self._group, self._topic = cluster, group, topic
        self._subscription = subscription or Subscription()
        self._tags = (
            TagExpression.parse(self._subscription.expression).tags
            if self._subscription.kind == "TAG"
            else frozenset()
        )
        self.invisible_ms, self._init_mode = invisible_ms, init_mode
        self._route_ms = route_ms
        self._brokers: tuple[str, ...] = ()
        self._brokers_due_ms = 0
        self._turns = itertools.count()
        self._has_batches = True
        self._held: dict[ReceiptHandle, int] = {}
        """What `receive` gave and its owner has not dealt with, and when that is over."""

    def start(self) -> PopConsumer:
        """Nothing has to be begun: it is there for `with`."""
        return self

    def close(self) -> list[RocketMQError]:
        """Hand back what was received, and neither acknowledged nor given another time."""
        time_ms = _now_ms()
        held, self._held = self._held, {}
        return self._hand_back([handle for handle, end_ms in held.items() if time_ms < end_ms])

    def receive(self, count_max: int = POP_COUNT_MAX, *, wait_ms: int = 0) -> list[Popped]:
        """Messages, up to 32 from the first broker that has some; none after `wait_ms`.

        Raises RocketMQError.
        """
        answer = self.receive_records(count_max, wait_ms=wait_ms)
        if answer is None:
            return []
        wanted, strays = popped_messages(
            answer.reply, broker=answer.broker, topic=self._topic, tags=self._tags
        )
        if strays:
            self.ack(strays)
        self._hold(wanted)
        return wanted

    def receive_records(
        self, count_max: int = POP_COUNT_MAX, *, wait_ms: int = 0
    ) -> PoppedRecords | None:
        """The same as records, tags not compared; None when nothing came. Raises RocketMQError."""
        brokers = self._masters()
        end_ms = _now_ms() + wait_ms
        found = self._pop_each(brokers, count_max)
        while found is None and brokers and (left_ms := end_ms - _now_ms()) > 0:
            slice_ms = left_ms if len(brokers) == 1 else min(left_ms, _WAIT_SLICE_MS)
            broker = brokers[next(self._turns) % len(brokers)]
            found = self._pop(broker, count_max, slice_ms)
        return found

    def ack(self, popped: Iterable[Popped]) -> list[RocketMQError]:
        """Acknowledge messages; what went wrong. Whatever was not acknowledged comes again."""
        return self.ack_handles([one.handle for one in popped])

    def ack_handles(self, handles: Iterable[ReceiptHandle]) -> list[RocketMQError]:
        """The same by handles alone: they are all that names a delivery."""
        by_broker: dict[str, list[ReceiptHandle]] = defaultdict(list)
        for handle in handles:
            self._held.pop(handle, None)
            by_broker[handle.broker].append(handle)
        requests: list[tuple[str, AckMessages]] = [
            (broker, AckMessages(broker, ack_spans(self._group, [(self._topic, h) for h in some])))
            for broker, some in by_broker.items()
        ]
        if not self._has_batches:
            return self._ack_singly(handle for some in by_broker.values() for handle in some)
        failed = []
        for (broker, _), reply in zip(requests, self._ask(requests), strict=True):
            if isinstance(reply, UnsupportedRequestError):
                # Brokers before 5.1.3 take them one by one.
                self._has_batches = False
                failed += self._ack_singly(by_broker[broker])
            elif isinstance(reply, RocketMQError):
                failed.append(reply)
        return failed

    def change_invisible(self, popped: Popped, invisible_ms: int) -> Popped:
        """Have a message come again at another time, from now on; its new delivery.

        Raises RocketMQError: a BrokerError of code 208 says that it has come again already.
        """
        (handle,) = self.change_handles([popped.handle], invisible_ms)
        if isinstance(handle, RocketMQError):
            raise handle
        return popped._replace(handle=handle)

    def hand_back(self, popped: Iterable[Popped]) -> list[RocketMQError]:
        """Have messages come again at once, for anybody; what went wrong."""
        return self._hand_back([one.handle for one in popped])

    def change_handles(
        self, handles: Sequence[ReceiptHandle], invisible_ms: int
    ) -> list[ReceiptHandle | RocketMQError]:
        """The new handle of each, or why it has none; the old ones are void."""
        for handle in handles:
            self._held.pop(handle, None)
        requests: list[tuple[str, ChangeInvisibleTime]] = [
            (one.broker, change_of(self._group, self._topic, one.text(), invisible_ms))
            for one in handles
        ]
        return [
            reply.handle_after(old) if isinstance(reply, InvisibleTimeReply) else _error_of(reply)
            for old, reply in zip(handles, self._ask(requests), strict=True)
        ]

    # --- inside -------------------------------------------------------------------------------

    def _hand_back(self, handles: Sequence[ReceiptHandle]) -> list[RocketMQError]:
        answers = self.change_handles(handles, AT_ONCE_MS)
        return [answer for answer in answers if isinstance(answer, RocketMQError)]

    def _hold(self, popped: Iterable[Popped]) -> None:
        time_ms = _now_ms()
        for one in popped:
            self._held[one.handle] = time_ms + self.invisible_ms
        while self._held:
            handle = next(iter(self._held))
            if len(self._held) <= _HELD_MAX and self._held[handle] > time_ms:
                return
            del self._held[handle]

    def _pop_each(self, brokers: Sequence[str], count_max: int) -> PoppedRecords | None:
        """One look at every broker, beginning with another one each time."""
        first = next(self._turns)
        error: RocketMQError | None = None
        for step in range(len(brokers)):
            try:
                found = self._pop(brokers[(first + step) % len(brokers)], count_max, 0)
            except RocketMQError as failure:
                if not failure.retryable:
                    raise
                # One broker that is away does not keep the messages of the others.
                error = failure
                continue
            if found is not None:
                return found
        if error is not None:
            raise error
        return None

    def _pop(self, broker: str, count_max: int, wait_ms: int) -> PoppedRecords | None:
        request = PopMessages(
            group=self._group,
            queue=QueueId(self._topic, broker, ANY_QUEUE),
            count_max=min(count_max, POP_COUNT_MAX),
            invisible_ms=self.invisible_ms,
            poll_ms=wait_ms,
            init_mode=self._init_mode,
            subscription=self._subscription,
        )
        timeout_ms = self._cluster.settings.request_timeout_ms + wait_ms
        if wait_ms:
            timeout_ms += _GRACE_MS
        (reply,) = self._cluster.transport.call_many([(broker, request)], timeout_ms=timeout_ms)
        if not isinstance(reply, PopReply):
            raise _error_of(reply)
        if reply.status is not PopStatus.FOUND or not reply.records:
            return None
        records = reply.records[0] if len(reply.records) == 1 else b"".join(reply.records)
        return PoppedRecords(self._topic, broker, bytes(records), reply.handles(broker), reply)

    def _end(self, *, has_failed: bool) -> None:
        del has_failed
        for error in self.close():
            _LOG.warning("topic=%s: a message was not handed back: %s", self._topic, error)

    def _ack_singly(self, handles: Iterable[ReceiptHandle]) -> list[RocketMQError]:
        requests: list[tuple[str, AckMessage]] = [
            (one.broker, ack_of(self._group, self._topic, one.text())) for one in handles
        ]
        return [reply for reply in self._ask(requests) if isinstance(reply, RocketMQError)]

    def _ask(
        self, requests: Sequence[tuple[str, Request[Reply]]]
    ) -> Sequence[Reply | RocketMQError]:
        if not requests:
            return ()
        timeout_ms = self._cluster.settings.request_timeout_ms
        return self._cluster.transport.call_many(requests, timeout_ms=timeout_ms)

    def _masters(self) -> tuple[str, ...]:
        """The brokers that lend messages of the topic: those with a master."""
        time_ms = _now_ms()
        if not self._brokers or time_ms >= self._brokers_due_ms:
            route = self._cluster.route(self._topic)
            masters = {one.name for one in route.brokers if MASTER_ID in one.addresses}
            readable = {queue.broker for queue in route.readable_queues(self._topic)}
            self._brokers = tuple(sorted(masters & readable))
            self._brokers_due_ms = time_ms + self._route_ms
        return self._brokers


def _error_of(reply: Reply | RocketMQError) -> RocketMQError:
    assert isinstance(reply, RocketMQError), reply
    return reply


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
