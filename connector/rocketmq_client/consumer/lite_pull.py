"""The lite pull consumer: `poll` returns messages of queues that are shared or assigned.

    with LitePullConsumer(connection, settings) as consumer:
        consumer.subscribe("orders")            # shared with the group
        messages = consumer.poll(1_000)

Messages count as consumed at the next `poll` or at `commit`: delivery is at least once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_client.consumer.active_consumer import ActiveConsumer
from rocketmq_client.consumer.allocation import Change
from rocketmq_client.consumer.common.io_thread import RpcHook
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.consuming.thread_pool import ConsumePool
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_client.consumer.membership.owned_queues import OwnedQueues
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue, QueuePuller, Subscribed
from rocketmq_client.errors import ClientStateError
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId, Route, Subscription

_LOG = logging.getLogger(__name__)

POLL_SIZE_MAX = 1_024
WAITING_MAX = 10_000
"""The limit of waiting messages over all queues; RocketMQ's `pullThresholdForAll`."""

_EVERYTHING: Final = Subscribed(Subscription(), 0)

OnTopicQueues = Callable[[tuple[QueueId, ...]], None]


@dataclass(slots=True)
class _Pulled:
    owned: OwnedQueue
    messages: list[ReceivedMessage]


class LitePullConsumer(ActiveConsumer):
    """A member of a consumer group that polls for messages.

    One thread at a time may use it, but any thread may call `wake` and `close`.

    Args:
        connection: The addresses of the cluster, credentials and time-outs.
        settings: The group, its subscriptions and limits.
        auto_commit: Counts messages as consumed at the next `poll`.
        waiting_max: The limit of pulled messages that wait for `poll`.
        instance_name: The instance part of the client id; None: a name of this process, or
            `DEFAULT` in broadcasting.
        unit_name: The unit part of the client id.
        rpc_hooks: Called around each request of this member.
        on_queues: Called with queues gained and lost.
    """

    _puller: QueuePuller

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
        """Raises ValueError. The start subscribes to `settings.subscriptions`.

        A thread of the consumer calls `on_queues` with queues gained and lost.
        """
        super().__init__(connection, settings, instance_name, unit_name, rpc_hooks, on_queues)
        self.auto_commit = auto_commit
        self._waiting_max = waiting_max
        self._assigned: dict[QueueId, int | None] | None = None
        self._pulled: deque[_Pulled] = deque()
        self._waiting_count = 0
        self._changed = threading.Condition()
        self._is_woken = False
        self._polled: set[OwnedQueue] = set()
        """Queues with polled messages that do not count as consumed yet; guarded by `_changed`."""
        self._watchers: dict[str, list[OnTopicQueues]] = {}
        self._watched: dict[str, tuple[QueueId, ...]] = {}
        """The queues of watched topics as of the last comparison."""
        self._pollers: ConsumePool | None = None

    # --- for the application ------------------------------------------------------------------

    def subscribe(self, topic: str, expression: str = "*", kind: str = "TAG") -> None:
        """Share a topic's queues with the group. Raises ClientStateError after `assign`."""
        if self._assigned is not None:
            raise ClientStateError("queues were assigned: a consumer either shares or is assigned")
        super().subscribe(topic, expression, kind)

    def assign(self, queues: Iterable[QueueId]) -> None:
        """Read exactly these queues, without sharing. Raises ClientStateError."""
        if self._subscriptions:
            raise ClientStateError("topics are subscribed: a consumer either shares or is assigned")
        self._assigned = dict.fromkeys(queues)
        self._subscribe_to({})

    def poll(
        self, timeout_ms: int = 5_000, count_max: int = POLL_SIZE_MAX
    ) -> list[ReceivedMessage]:
        """Messages of one queue, in order; an empty list if none arrive in time.

        With auto-commit the messages of the previous call count as consumed now. Without it only
        `commit` makes them count; an application that stores offsets itself need not call it.
        """
        self._running()
        if self.auto_commit:
            self._mark_consumed()
        with self._changed:
            self._changed.wait_for(lambda: self._pulled or self._is_woken, timeout_ms / 1_000)
            self._is_woken = False
            while self._pulled:
                pulled = self._pulled.popleft()
                if pulled.owned.process.is_dropped:
                    self._waiting_count -= len(pulled.messages)
                    continue
                if len(pulled.messages) > count_max:
                    rest = pulled.messages[count_max:]
                    pulled.messages = pulled.messages[:count_max]
                    self._pulled.appendleft(_Pulled(pulled.owned, rest))
                self._waiting_count -= len(pulled.messages)
                break
            else:
                return []
        self._take(pulled)
        return pulled.messages

    def poll_async(
        self,
        on_done: Callable[[list[ReceivedMessage] | RocketMQError], None],
        timeout_ms: int = 5_000,
        count_max: int = POLL_SIZE_MAX,
    ) -> None:
        """`poll` in a thread of the consumer, one call after the other.

        The thread calls `on_done` once, with the messages or the error.
        """
        io = self._running().io

        def poll() -> None:
            result: list[ReceivedMessage] | RocketMQError
            try:
                result = self.poll(timeout_ms, count_max)
            except RocketMQError as error:
                result = error
            on_done(result)

        if self._pollers is None:
            self._pollers = ConsumePool(f"rocketmq-poll-{self.group}", 1, io)
        if not self._pollers.put(poll):
            on_done(self._state_error())

    def wake(self) -> None:
        """Let a waiting `poll` return, from any thread."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def commit(self) -> None:
        """Mark all polled messages as consumed, and return once the broker has the offsets."""
        self._mark_consumed()
        with self._rebalance_lock:
            if self._instance is not None:
                self._queues.persist()

    def seek(self, queue: QueueId, offset: int) -> None:
        """Continue at an offset.

        Raises ClientStateError for a queue that this consumer does not read, and ValueError for an
        offset that the queue does not have.
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
                self._pulled = deque(one for one in self._pulled if one.owned.queue != queue)
                self._waiting_count = sum(len(pulled.messages) for pulled in self._pulled)
                self._polled = {one for one in self._polled if one.queue != queue}
            self._puller.start(owned)

    def seek_to_begin(self, queue: QueueId) -> None:
        """Continue at the first available message."""
        self.seek(queue, self.min_offset(queue))

    def seek_to_end(self, queue: QueueId) -> None:
        """Continue behind the last message."""
        self.seek(queue, self.max_offset(queue))

    def pause(self, queues: Iterable[QueueId]) -> None:
        """Stop pulling from these queues; `poll` still returns messages already pulled."""
        self._puller.paused |= frozenset(queues)

    def resume(self, queues: Iterable[QueueId]) -> None:
        """Pull from these queues again, within a second."""
        self._puller.paused -= frozenset(queues)

    def on_topic_queues(self, topic: str, on_change: OnTopicQueues) -> None:
        """Call `on_change` with a topic's queues after each change that a route refresh shows."""
        self._watchers.setdefault(topic, []).append(on_change)
        if self._instance is not None:
            self._announce(self._instance)

    @property
    def consumed_offsets(self) -> Mapping[QueueId, int]:
        return self._queues.offsets()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            # The application failed on the messages polled last, so they are not consumed.
            with self._changed:
                self._polled = set()
        self.close()

    # --- for the client instance: see `Member` ------------------------------------------------

    def topics(self) -> Iterable[str]:
        assigned = {queue.topic for queue in self._assigned or ()}
        return {*super().topics(), *assigned, *self._watchers}

    def housekeep(self, now_ms: int) -> int:
        instance = self._instance
        if instance is not None:
            for topic in tuple(self._watchers):
                self._compare(topic, instance.route(topic))
        return super().housekeep(now_ms)

    def _compare(self, topic: str, route: Route | None) -> None:
        """Report a topic's queues if they differ; the first comparison only notes them."""
        if route is None:
            return
        queues = route.readable_queues(topic)
        known = self._watched.get(topic, queues)
        self._watched[topic] = queues
        if known == queues:
            return
        for on_change in self._watchers[topic]:
            try:
                on_change(queues)
            except BaseException:  # noqa: BLE001, PERF203 - the application's callback
                _LOG.exception("topic=%s: a callback for its queues failed", topic)

    def _attach(self, instance: ClientInstance) -> None:
        self._puller = QueuePuller(
            instance.io,
            self.settings,
            is_orderly=False,
            on_messages=self._on_messages,
            on_illegal=lambda owned, offset: self._queues.correct(owned, offset),
            subscription_of=self._subscription_of,
            rates=self._rates,
            is_full=lambda: self._waiting_count > self._waiting_max,
            # `poll` returns messages before they are consumed.
            commits_on_pull=False,
        )
        self._queues = OwnedQueues(instance, self.settings, self._puller, on_change=self._on_queues)

    def _persist(self, now_ms: int) -> None:
        if self.auto_commit:
            super()._persist(now_ms)

    def _stop(self) -> None:
        self._puller.is_stopping = True
        self.wake()
        if self._pollers is not None:
            self._pollers.shut_down(self.settings.shutdown_wait_ms)
        if self.auto_commit:
            self._mark_consumed()

    def _subscription_of(self, topic: str) -> Subscribed | None:
        return self._subscribed.get(topic) if self._assigned is None else _EVERYTHING

    def _rebalance_queues(self) -> bool:
        if self._assigned is not None:
            return self._queues.own_exactly(tuple(self._assigned))
        return super()._rebalance_queues()

    def _on_messages(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        with self._changed:
            self._pulled.append(_Pulled(owned, messages))
            self._waiting_count += len(messages)
            self._changed.notify_all()

    def _take(self, pulled: _Pulled) -> None:
        """Free the messages' share of the flow limits, so that the queue is pulled on."""
        owned = pulled.owned
        with owned.lock:
            owned.process.take(pulled.messages)
            may_pull = owned.control.on_consumed(owned.process)
        with self._changed:
            self._polled.add(owned)
        if may_pull:
            self._puller.start(owned)

    def _mark_consumed(self) -> None:
        """Count all polled messages as consumed."""
        with self._changed:
            polled, self._polled = self._polled, set()
        for owned in polled:
            with owned.lock:
                owned.process.finish_taken()
