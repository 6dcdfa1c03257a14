"""The simple pop consumer receives messages and acknowledges them, or defers them.

    with open_cluster(connection) as cluster:
        with PopConsumer(cluster, "group", "orders") as consumer:
            for popped in consumer.receive(wait_ms=10_000):
                consumer.ack([popped])

Any number of consumers may pop the same queues: a popped message is invisible to the others for a
while. If it is not acknowledged by then, the broker redelivers it: delivery is at least once.
`close` hands back every message that was neither acknowledged nor deferred, so that other consumers
receive it at once.
"""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

from rocketmq_client.cluster import Cluster
from rocketmq_client.consumer.common.io_thread import now_ms
from rocketmq_client.consumer.common.messages import (
    INFLATED_BATCH_MAX,
    Popped,
    popped_messages,
    tags_of,
)
from rocketmq_wire.errors import RocketMQError, UnsupportedRequestError
from rocketmq_wire.model import MASTER_ID, QueueId, Subscription
from rocketmq_wire.records.handles import ReceiptHandle
from rocketmq_wire.requests import pop
from rocketmq_wire.requests.contract import Reply, Request

_LOG = logging.getLogger(__name__)

_GRACE_MS: Final = 10_000
_OPEN_MAX: Final = 100_000
"""The limit of messages that `close` hands back; others are redelivered in time."""
_WAIT_SLICE_MS: Final = 1_000
"""The wait at one broker before the next one is asked."""


@dataclass(frozen=True, slots=True)
class PoppedRecords:
    """An undecoded pop reply: whole records, and their handles in the same order."""

    topic: str
    broker: str
    records: bytes
    handles: tuple[ReceiptHandle, ...]
    reply: pop.PopReply


@dataclass(eq=False)
class PopConsumer:
    """Pops one topic for one group, in one thread at a time; every call has a time limit.

    Args:
        cluster: The open cluster.
        group: The consumer group.
        topic: The topic to pop from.
        subscription: The filter; None: every message.
        invisible_ms: The time to acknowledge a message before it is delivered again.
        init_mode: Where a new group starts: the first message, or the next one.
        route_ms: The period of the topic's route refresh.
    """

    cluster: Cluster
    group: str
    topic: str
    _: KW_ONLY
    subscription: Subscription | None = None
    invisible_ms: int = 60_000
    init_mode: pop.InitMode = pop.InitMode.MIN
    route_ms: int = 30_000
    """The period of the topic's route refresh."""

    def __post_init__(self) -> None:
        self._wanted = self.subscription or Subscription()
        self._tags = tags_of(self._wanted)
        self._brokers: tuple[str, ...] = ()
        self._brokers_due_ms = 0
        self._rotation = itertools.count()
        self._has_batches = True
        self._open: dict[ReceiptHandle, int] = {}
        """Received messages, neither acknowledged nor deferred, and when each becomes visible."""
        self._packed: list[Popped] = []
        """Popped messages for the next `receive`."""

    def start(self) -> PopConsumer:
        """Do nothing: `with` calls it."""
        return self

    def __enter__(self) -> PopConsumer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        for error in self.close():
            _LOG.warning("topic=%s: a message could not be handed back: %s", self.topic, error)

    def close(self) -> list[RocketMQError]:
        """Hand back the messages that were neither acknowledged nor deferred; returns errors."""
        time_ms = now_ms()
        popped, self._open = self._open, {}
        return self._hand_back([handle for handle, end_ms in popped.items() if time_ms < end_ms])

    def receive(self, count_max: int = pop.POP_COUNT_MAX, *, wait_ms: int = 0) -> list[Popped]:
        """Up to 32 messages from the first broker that has some; none after `wait_ms`.

        Raises RocketMQError.
        """
        unpacked = self._unpack(count_max)
        if unpacked:
            return unpacked
        found = self.receive_records(count_max, wait_ms=wait_ms)
        if found is None:
            return []
        wanted, unwanted = popped_messages(
            found.reply, broker=found.broker, topic=self.topic, tags=self._tags
        )
        if unwanted:
            self.ack(unwanted)
        self._remember(wanted)
        first = next((at for at, one in enumerate(wanted) if one.message.is_packed), len(wanted))
        self._packed = wanted[first:]
        return wanted[:first] or self._unpack(count_max)

    def _unpack(self, count_max: int) -> list[Popped]:
        """The next messages of a pop whose bodies inflate to more than one batch may take."""
        found: list[Popped] = []
        size = 0
        while self._packed and len(found) < count_max and size < INFLATED_BATCH_MAX:
            one = self._packed.pop(0)
            # The broker redelivers a message that is visible again.
            if now_ms() < self._open.get(one.handle, 0):
                one.message.unpack()
                size += len(one.message.body)
                found.append(one)
        return found

    def receive_records(
        self, count_max: int = pop.POP_COUNT_MAX, *, wait_ms: int = 0
    ) -> PoppedRecords | None:
        """As `receive`, undecoded and without comparing tags; None without messages."""
        brokers = self._masters()
        end_ms = now_ms() + wait_ms
        found = self._pop_each(brokers, count_max)
        while found is None and brokers and (left_ms := end_ms - now_ms()) > 0:
            slice_ms = left_ms if len(brokers) == 1 else min(left_ms, _WAIT_SLICE_MS)
            broker = brokers[next(self._rotation) % len(brokers)]
            found = self._pop(broker, count_max, slice_ms)
        return found

    def ack(self, popped: Iterable[Popped]) -> list[RocketMQError]:
        """Acknowledge messages; returns errors. The broker redelivers the other messages."""
        return self.ack_handles([one.handle for one in popped])

    def ack_handles(self, handles: Iterable[ReceiptHandle]) -> list[RocketMQError]:
        """As `ack`, by handles: a handle identifies a delivery."""
        by_broker: dict[str, list[ReceiptHandle]] = defaultdict(list)
        for handle in handles:
            self._open.pop(handle, None)
            by_broker[handle.broker].append(handle)
        if not self._has_batches:
            return self._ack_singly(handle for some in by_broker.values() for handle in some)
        requests: list[tuple[str, pop.AckMessages]] = []
        for broker, some in by_broker.items():
            spans = pop.ack_spans(self.group, [(self.topic, handle) for handle in some])
            requests.append((broker, pop.AckMessages(broker, spans)))
        errors = []
        for (broker, _), reply in zip(requests, self._ask(requests), strict=True):
            if isinstance(reply, UnsupportedRequestError):
                # Brokers before 5.1.3 take one acknowledgement per request.
                self._has_batches = False
                errors += self._ack_singly(by_broker[broker])
            elif isinstance(reply, RocketMQError):
                errors.append(reply)
        return errors

    def change_invisible(self, popped: Popped, invisible_ms: int) -> Popped:
        """Defer a message: it becomes visible `invisible_ms` from now. Returns its new delivery.

        Raises RocketMQError; a BrokerError of code 208 means that it was redelivered already.
        """
        (handle,) = self.change_handles([popped.handle], invisible_ms)
        if isinstance(handle, RocketMQError):
            raise handle
        return popped._replace(handle=handle)

    def hand_back(self, popped: Iterable[Popped]) -> list[RocketMQError]:
        """Make messages visible to every consumer at once; returns errors."""
        return self._hand_back([one.handle for one in popped])

    def change_handles(
        self, handles: Sequence[ReceiptHandle], invisible_ms: int
    ) -> list[ReceiptHandle | RocketMQError]:
        """Defer messages; returns each one's new handle or error. Old handles become invalid."""
        for handle in handles:
            self._open.pop(handle, None)
        requests: list[tuple[str, pop.ChangeInvisibleTime]] = [
            (one.broker, pop.change_of(self.group, self.topic, one.text(), invisible_ms))
            for one in handles
        ]
        return [
            reply.handle_after(old)
            if isinstance(reply, pop.InvisibleTimeReply)
            else _error_of(reply)
            for old, reply in zip(handles, self._ask(requests), strict=True)
        ]

    def _hand_back(self, handles: Sequence[ReceiptHandle]) -> list[RocketMQError]:
        results = self.change_handles(handles, pop.AT_ONCE_MS)
        return [result for result in results if isinstance(result, RocketMQError)]

    def _remember(self, popped: Iterable[Popped]) -> None:
        time_ms = now_ms()
        for one in popped:
            self._open[one.handle] = time_ms + self.invisible_ms
        while self._open:
            handle = next(iter(self._open))
            if len(self._open) <= _OPEN_MAX and self._open[handle] > time_ms:
                return
            del self._open[handle]

    def _pop_each(self, brokers: Sequence[str], count_max: int) -> PoppedRecords | None:
        """Pop once from each broker until one has messages, starting with another one each time."""
        first = next(self._rotation)
        error: RocketMQError | None = None
        for step in range(len(brokers)):
            try:
                found = self._pop(brokers[(first + step) % len(brokers)], count_max, 0)
            except RocketMQError as failure:
                if not failure.retryable:
                    raise
                # The other brokers may still have messages.
                error = failure
                continue
            if found is not None:
                return found
        if error is not None:
            raise error
        return None

    def _pop(self, broker: str, count_max: int, wait_ms: int) -> PoppedRecords | None:
        request = pop.PopMessages(
            group=self.group,
            queue=QueueId(self.topic, broker, pop.ANY_QUEUE),
            count_max=min(count_max, pop.POP_COUNT_MAX),
            invisible_ms=self.invisible_ms,
            poll_ms=wait_ms,
            init_mode=self.init_mode,
            subscription=self._wanted,
        )
        timeout_ms = self.cluster.settings.request_timeout_ms + wait_ms
        if wait_ms:
            timeout_ms += _GRACE_MS
        (reply,) = self.cluster.transport.call_many([(broker, request)], timeout_ms=timeout_ms)
        if not isinstance(reply, pop.PopReply):
            raise _error_of(reply)
        if reply.status is not pop.PopStatus.FOUND or not reply.records:
            return None
        records = reply.records[0] if len(reply.records) == 1 else b"".join(reply.records)
        return PoppedRecords(self.topic, broker, bytes(records), reply.handles(broker), reply)

    def _ack_singly(self, handles: Iterable[ReceiptHandle]) -> list[RocketMQError]:
        requests: list[tuple[str, pop.AckMessage]] = [
            (one.broker, pop.ack_of(self.group, self.topic, one.text())) for one in handles
        ]
        return [reply for reply in self._ask(requests) if isinstance(reply, RocketMQError)]

    def _ask(
        self, requests: Sequence[tuple[str, Request[Reply]]]
    ) -> Sequence[Reply | RocketMQError]:
        if not requests:
            return ()
        timeout_ms = self.cluster.settings.request_timeout_ms
        return self.cluster.transport.call_many(requests, timeout_ms=timeout_ms)

    def _masters(self) -> tuple[str, ...]:
        """The topic's brokers with a master: only masters serve pops."""
        time_ms = now_ms()
        if not self._brokers or time_ms >= self._brokers_due_ms:
            route = self.cluster.route(self.topic)
            masters = {one.name for one in route.brokers if MASTER_ID in one.addresses}
            readable = {queue.broker for queue in route.readable_queues(self.topic)}
            self._brokers = tuple(sorted(masters & readable))
            self._brokers_due_ms = time_ms + self.route_ms
        return self._brokers


def _error_of(reply: Reply | RocketMQError) -> RocketMQError:
    assert isinstance(reply, RocketMQError), reply
    return reply
