"""The lite pull consumer: messages are asked for by `poll`, from queues shared or assigned.

    with LitePullConsumer(connection, settings) as consumer:
        consumer.subscribe("orders")            # shared with the group
        messages = consumer.poll(1_000)

Messages count as consumed when `poll` is called again, or `commit` is: at least once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rocketmq_client.consumer.active_consumer import ActiveConsumer
from rocketmq_client.consumer.allocation import Change
from rocketmq_client.consumer.common.io_thread import RpcHook, now_ms
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings, wrapped
from rocketmq_client.consumer.consuming.thread_pool import ConsumePool
from rocketmq_client.consumer.group_consumer import ConsumerState
from rocketmq_client.consumer.membership.client_instance import ClientInstance, ClientStateError
from rocketmq_client.consumer.membership.owned_queues import OwnedQueues
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue, QueuePuller
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, RocketMQError, broker_error
from rocketmq_wire.model import QueueId, Route, Subscription
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.members import ConsumeDirectly

_LOG = logging.getLogger(__name__)

POLL_SIZE_MAX = 1_024
WAITING_MAX = 10_000
"""Of all queues together; RocketMQ's `pullThresholdForAll`."""


@dataclass(slots=True)
class _Arrived:
    owned: OwnedQueue
    messages: list[ReceivedMessage]


class LitePullConsumer(ActiveConsumer):
    """One owner at a time, but `wake` and `close` may be called from any thread."""

    _consume_type = "CONSUME_ACTIVELY"

    def __init__(
        self,
        connection: ConnectionSettings,
        settings: ConsumerSettings,
        *,
        auto_commit: bool = True,
        waiting_max: int = WAITING_MAX,
        instance_name: str | None = None,
        unit_name: str | None = None,
        rpc_hooks: Sequence[RpcHook] = (),
        on_queues: Callable[[Change], None] | None = None,
    ) -> None:
        """Raises ValueError. `settings.subscriptions` are subscribed to at the start.

        `on_queues` is told of queues gained and lost, in a thread of the consumer's.
        """
        super().__init__(
            connection,
            settings,
            instance_name=instance_name,
            unit_name=unit_name,
            rpc_hooks=rpc_hooks,
        )
        self.auto_commit, self._waiting_max, self._on_queues = auto_commit, waiting_max, on_queues
        self._assigned: dict[QueueId, int | None] | None = None
        self._arrived: deque[_Arrived] = deque()
        self._waiting = 0
        self._changed = threading.Condition()
        self._is_woken = False
        self._polled: set[OwnedQueue] = set()
        """Queues of which messages were polled that do not count as consumed yet; by `_changed`."""
        self._watch = TopicWatch()
        self._callers: ConsumePool | None = None

    # --- for its owner ------------------------------------------------------------------------

    def start(self) -> LitePullConsumer:
        """Join the group. Raises ClientStateError."""
        instance = self._acquire()
        settings = self.settings
        self._puller = QueuePuller(
            instance.io,
            settings,
            is_orderly=False,
            on_messages=self._on_messages,
            on_illegal=lambda owned, offset: self._queues.correct(owned, offset),
            subscription_of=self._subscription_of,
            is_full=lambda: self._waiting >= self._waiting_max,
            # `poll` returns messages before they are consumed.
            commits_on_pull=False,
        )
        self._queues = OwnedQueues(
            instance, settings, self._puller, is_orderly=False, on_change=self._on_queues
        )
        self._persist_due_ms = now_ms() + settings.persist_ms
        self._register(instance)
        return self

    def subscribe(self, topic: str, expression: str = "*", kind: str = "TAG") -> None:
        """Share a topic's queues with the group. Raises ClientStateError after `assign`."""
        if self._assigned is not None:
            raise ClientStateError("queues were assigned: a consumer either shares or is assigned")
        wanted, topic = Subscription(expression, kind), wrapped(self.settings.namespace, topic)
        if self._instance is not None and kind != "TAG":
            self._instance.check_subscription(self.group, topic, wanted)
        self._subscribe_to({**self._subscriptions, topic: wanted})

    def unsubscribe(self, topic: str) -> None:
        """Give a topic's queues up."""
        topic = wrapped(self.settings.namespace, topic)
        self._subscribe_to({t: s for t, s in self._subscriptions.items() if t != topic})

    def assign(self, queues: Iterable[QueueId]) -> None:
        """Read exactly these queues, whatever others do. Raises ClientStateError."""
        if self._subscriptions:
            raise ClientStateError("topics are subscribed: a consumer either shares or is assigned")
        self._assigned = dict.fromkeys(queues)
        self._subscribe_to({})

    def poll(
        self, timeout_ms: int = 5_000, count_max: int = POLL_SIZE_MAX
    ) -> list[ReceivedMessage]:
        """Messages of one queue, in order; none when none came in time.

        With auto-commit the messages of the call before count as consumed now. Without it nothing
        does before `commit`: for owners that keep offsets themselves it may never be called.
        """
        self._running()
        if self.auto_commit:
            self._mark_consumed()
        with self._changed:
            self._changed.wait_for(lambda: self._arrived or self._is_woken, timeout_ms / 1_000)
            self._is_woken = False
            while self._arrived:
                arrived = self._arrived.popleft()
                if arrived.owned.process.is_dropped:
                    self._waiting -= len(arrived.messages)
                    continue
                if len(arrived.messages) > count_max:
                    rest = arrived.messages[count_max:]
                    arrived.messages = arrived.messages[:count_max]
                    self._arrived.appendleft(_Arrived(arrived.owned, rest))
                self._waiting -= len(arrived.messages)
                break
            else:
                return []
        self._take(arrived)
        return arrived.messages

    def poll_async(
        self,
        on_done: Callable[[list[ReceivedMessage] | RocketMQError], None],
        timeout_ms: int = 5_000,
        count_max: int = POLL_SIZE_MAX,
    ) -> None:
        """`poll` in a thread of the consumer's, one call after the other.

        `on_done` is called once, with the messages or with why there are none.
        """
        self._running()

        def poll() -> None:
            result: list[ReceivedMessage] | RocketMQError
            try:
                result = self.poll(timeout_ms, count_max)
            except RocketMQError as error:
                result = error
            on_done(result)

        if self._callers is None:
            self._callers = ConsumePool(f"rocketmq-poll-{self.group}", 1)
        if not self._callers.put(poll):
            on_done(self._state_error())

    def wake(self) -> None:
        """Let a waiting `poll` return, from any thread."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def commit(self) -> None:
        """All that was polled is consumed: store that at the broker, and wait until it is."""
        self._mark_consumed()
        with self._rebalance_lock:
            if self._instance is not None:
                self._queues.persist()

    def seek(self, queue: QueueId, offset: int) -> None:
        """Go on at an offset.

        Raises ClientStateError for a queue that is not read here, ValueError for an offset that
        the queue does not have.
        """
        if queue not in self._queues.owned:
            raise ClientStateError(f"{queue} is not read by this consumer")
        first, end = self.min_offset(queue), self.max_offset(queue)
        if not first <= offset <= end:
            raise ValueError(f"{queue} has [{first},{end}): offset {offset} is not in it")
        with self._rebalance_lock:
            if queue not in self._queues.owned:
                raise ClientStateError(f"{queue} is not read by this consumer any more")
            owned = self._queues.restart(queue, offset)
            with self._changed:
                self._arrived = deque(a for a in self._arrived if a.owned.queue != queue)
                self._waiting = sum(len(arrived.messages) for arrived in self._arrived)
                self._polled = {one for one in self._polled if one.queue != queue}
            self._puller.start(owned)

    def seek_to_begin(self, queue: QueueId) -> None:
        """Go on at the first message that is there."""
        self.seek(queue, self.min_offset(queue))

    def seek_to_end(self, queue: QueueId) -> None:
        """Go on behind the last message."""
        self.seek(queue, self.max_offset(queue))

    def pause(self, queues: Iterable[QueueId]) -> None:
        """Pull no more from these; what was pulled is still handed out."""
        self._puller.paused |= frozenset(queues)

    def resume(self, queues: Iterable[QueueId]) -> None:
        """Pull from these again, within a second."""
        self._puller.paused -= frozenset(queues)

    def on_topic_queues(self, topic: str, on_change: Callable[[tuple[QueueId, ...]], None]) -> None:
        """Be told of a topic's queues whenever they change, within the time of a route refresh."""
        self._watch.add(topic, on_change)
        if self._instance is not None:
            self._join(self._instance)

    @property
    def positions(self) -> Mapping[QueueId, int]:
        """What counts as consumed, by queue."""
        return {queue: one.process.consumed_offset for queue, one in self._queues.owned.items()}

    def close(self) -> None:
        """Store what was consumed and leave the group. Again: harmless."""
        with self._rebalance_lock:
            instance, self._instance = self._instance, None
        if instance is None:
            return
        self._state = ConsumerState.SHUT_DOWN
        try:
            self._puller.is_suspended = True
            self.wake()
            if self._callers is not None:
                self._callers.shut_down(self.settings.shutdown_wait_ms)
            if self.auto_commit:
                self._mark_consumed()
            with self._rebalance_lock:
                self._queues.lose_all()
            instance.unregister(self)
        finally:
            instance.release()

    def _end(self, *, has_failed: bool) -> None:
        if has_failed:
            # What was polled last was not dealt with: it comes again.
            with self._changed:
                self._polled = set()
        self.close()

    # --- for its instance ---------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        """See `Member.topics`."""
        assigned = {queue.topic for queue in self._assigned or ()}
        return {*self._subscriptions, *assigned, *self._watch.topics, *self._asked_topics}

    def housekeep(self, now_ms: int) -> int:
        """See `Member.housekeep`."""
        instance = self._instance
        if self._retry_due_ms and now_ms >= self._retry_due_ms and instance is not None:
            self._retry_due_ms = 0
            instance.want_rebalance()
        if instance is not None:
            self._watch.look(instance.route)
        with self._rebalance_lock:
            if self._instance is not None:
                self._keep(self._instance, now_ms)
        return min(self._persist_due_ms, self._retry_due_ms or self._persist_due_ms)

    def consume_directly(
        self, request: ConsumeDirectly, on_done: Callable[[Reply | BrokerError], None]
    ) -> None:
        """See `Member.consume_directly`."""
        del request
        on_done(
            broker_error(
                ResponseCode.SYSTEM_ERROR, "this consumer polls: it has no listener to consume with"
            )
        )

    # --- inside -------------------------------------------------------------------------------

    def _keep(self, instance: ClientInstance, now_ms: int) -> None:
        self._queues.store_corrections()
        if now_ms < self._persist_due_ms:
            return
        self._persist_due_ms = now_ms + self.settings.persist_ms
        if self.auto_commit:
            self._queues.persist()
        if self._queues.drop_stale(now_ms):
            instance.want_rebalance()

    def _subscription_of(self, topic: str) -> Subscription | None:
        if self._assigned is not None:
            return Subscription()
        return self._subscriptions.get(topic)

    def _rebalance_queues(self) -> bool:
        if self._assigned is not None:
            return self._queues.own_exactly(tuple(self._assigned))
        return super()._rebalance_queues()

    def _on_messages(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        with self._changed:
            self._arrived.append(_Arrived(owned, messages))
            self._waiting += len(messages)
            self._changed.notify_all()

    def _take(self, arrived: _Arrived) -> None:
        """The owner has the messages: others may be pulled in their stead."""
        owned = arrived.owned
        with owned.lock:
            owned.process.take(arrived.messages)
            is_worth_a_look = owned.control.on_consumed(owned.process)
        with self._changed:
            self._polled.add(owned)
        if is_worth_a_look:
            self._puller.start(owned)

    def _mark_consumed(self) -> None:
        """What was polled so far is consumed."""
        with self._changed:
            polled, self._polled = self._polled, set()
        for owned in polled:
            with owned.lock:
                owned.process.finish_taken()


class TopicWatch:
    """Looks at routes when it is told to; the first look only remembers them."""

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callable[[tuple[QueueId, ...]], None]]] = {}
        self._known: dict[str, tuple[QueueId, ...]] = {}

    @property
    def topics(self) -> Iterable[str]:
        """What is watched."""
        return tuple(self._callbacks)

    def add(self, topic: str, on_change: Callable[[tuple[QueueId, ...]], None]) -> None:
        """Watch a topic."""
        self._callbacks.setdefault(topic, []).append(on_change)

    def look(self, route: Callable[[str], Route | None]) -> None:
        """Compare; what a callback raises is logged."""
        for topic in self.topics:
            found = route(topic)
            if found is None:
                continue
            queues = found.readable_queues(topic)
            known = self._known.get(topic)
            self._known[topic] = queues
            if known is None or known == queues:
                continue
            for on_change in self._callbacks[topic]:
                try:
                    on_change(queues)
                except BaseException:  # noqa: BLE001, PERF203 - a callback is not ours
                    _LOG.exception("topic=%s: a callback for its queues failed", topic)
