"""The lite pull consumer: messages are asked for by `poll`, from queues shared or assigned.

    with LitePullConsumer(connection, settings) as consumer:
        consumer.subscribe("orders")            # shared with the group
        messages = consumer.poll(1_000)

Messages count as consumed when `poll` is called again, or `commit` is: at least once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType

from rocketmq_client.groups.client_instance import ClientStateError
from rocketmq_client.groups.consumer_settings import ConsumerSettings
from rocketmq_client.groups.group_consumer import GroupConsumer
from rocketmq_client.groups.messages import ReceivedMessage
from rocketmq_client.groups.queue_puller import OwnedQueue, QueuePuller
from rocketmq_client.groups.queue_share import QueueShare
from rocketmq_client.groups.wire_thread import now_ms
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.consumption_requests import ConsumeDirectly
from rocketmq_wire.errors import BrokerError, broker_error
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.requests import Reply

_POLL_SIZE_MAX = 1_024


@dataclass(slots=True)
class _Arrived:
    owned: OwnedQueue
    messages: list[ReceivedMessage]


class LitePullConsumer(GroupConsumer):
    """One owner at a time, but `wake` and `close` may be called from any thread."""

    _consume_type = "CONSUME_ACTIVELY"

    def __init__(
        self,
        connection: ConnectionSettings,
        settings: ConsumerSettings,
        *,
        auto_commit: bool = True,
        instance_name: str | None = None,
        unit_name: str | None = None,
    ) -> None:
        """Raises ValueError. `settings.subscriptions` are subscribed to at the start."""
        super().__init__(connection, settings, instance_name=instance_name, unit_name=unit_name)
        self.auto_commit = auto_commit
        self._assigned: dict[QueueId, int | None] | None = None
        self._arrived: deque[_Arrived] = deque()
        self._changed = threading.Condition()
        self._is_woken = False
        self._polled: list[_Arrived] = []

    # --- for its owner ------------------------------------------------------------------------

    def start(self) -> LitePullConsumer:
        """Join the group. Raises ClientStateError."""
        instance = self._acquire()
        settings = self.settings
        self._puller = QueuePuller(
            instance.wire,
            settings,
            is_orderly=False,
            on_messages=self._on_messages,
            on_illegal=lambda owned, offset: self._share.correct(owned, offset),
        )
        # A pull must not store what was only handed out.
        self._puller.commits_on_pull = False
        self._share = QueueShare(instance, settings, self._puller, is_orderly=False)
        self._persist_due_ms = now_ms() + settings.persist_ms
        self._register(instance)
        return self

    def subscribe(self, topic: str, expression: str = "*", kind: str = "TAG") -> None:
        """Share a topic's queues with the group. Raises ClientStateError after `assign`."""
        if self._assigned is not None:
            raise ClientStateError("queues were assigned: a consumer either shares or is assigned")
        self._subscriptions = {**self._subscriptions, topic: Subscription(expression, kind)}
        self._version += 1
        self._join()

    def unsubscribe(self, topic: str) -> None:
        """Give a topic's queues up."""
        self._subscriptions = {t: s for t, s in self._subscriptions.items() if t != topic}
        self._version += 1
        self._join()

    def assign(self, queues: Iterable[QueueId]) -> None:
        """Read exactly these queues, whatever others do. Raises ClientStateError."""
        if self._subscriptions:
            raise ClientStateError("topics are subscribed: a consumer either shares or is assigned")
        self._assigned = dict.fromkeys(queues)
        self._join()

    def poll(
        self, timeout_ms: int = 5_000, count_max: int = _POLL_SIZE_MAX
    ) -> list[ReceivedMessage]:
        """Messages of one queue, in order; none when none came in time.

        With auto-commit the messages of the call before count as consumed now.
        """
        if self._instance is None:
            raise ClientStateError("the consumer is not running: call start() first")
        if self.auto_commit:
            self._settle()
        with self._changed:
            self._changed.wait_for(lambda: self._arrived or self._is_woken, timeout_ms / 1_000)
            self._is_woken = False
            while self._arrived:
                arrived = self._arrived.popleft()
                if arrived.owned.process.is_dropped:
                    continue
                if len(arrived.messages) > count_max:
                    rest = arrived.messages[count_max:]
                    arrived.messages = arrived.messages[:count_max]
                    self._arrived.appendleft(_Arrived(arrived.owned, rest))
                self._polled.append(arrived)
                return arrived.messages
        return []

    def wake(self) -> None:
        """Let a waiting `poll` return, from any thread."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def commit(self) -> None:
        """All that was polled is consumed: store that at the broker, and wait until it is."""
        self._settle()
        with self._sharing:
            if self._instance is not None:
                self._share.persist()

    def seek(self, queue: QueueId, offset: int) -> None:
        """Go on at an offset. Raises ClientStateError for a queue that is not read here."""
        with self._sharing:
            if queue not in self._share.owned:
                raise ClientStateError(f"{queue} is not read by this consumer")
            owned = self._share.restart(queue, offset)
            with self._changed:
                self._arrived = deque(a for a in self._arrived if a.owned.queue != queue)
                self._polled = [a for a in self._polled if a.owned.queue != queue]
            self._puller.start(owned)

    @property
    def positions(self) -> Mapping[QueueId, int]:
        """What counts as consumed, by queue."""
        return {queue: one.process.done for queue, one in self._share.owned.items()}

    def close(self) -> None:
        """Store what was consumed and leave the group. Again: harmless."""
        with self._sharing:
            instance, self._instance = self._instance, None
        if instance is None:
            return
        try:
            self._puller.is_suspended = True
            self.wake()
            if self.auto_commit:
                self._settle()
            with self._sharing:
                self._share.lose(tuple(self._share.owned))
            instance.unregister(self)
        finally:
            instance.release()

    def __enter__(self) -> LitePullConsumer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            # What was polled last was not dealt with: it comes again.
            self._polled = []
        self.close()

    # --- for its instance ---------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        """See `Member.topics`."""
        return {*self._subscriptions, *(queue.topic for queue in self._assigned or ())}

    def housekeep(self, now_ms: int) -> int:
        """See `Member.housekeep`."""
        instance = self._instance
        if self._retry_due_ms and now_ms >= self._retry_due_ms and instance is not None:
            self._retry_due_ms = 0
            instance.want_rebalance()
        if now_ms >= self._persist_due_ms:
            self._persist_due_ms = now_ms + self.settings.persist_ms
            with self._sharing:
                if self._instance is not None and self.auto_commit:
                    self._share.persist()
        return min(self._persist_due_ms, self._retry_due_ms or self._persist_due_ms)

    def consume_directly(
        self, request: ConsumeDirectly, on_done: Callable[[Reply | BrokerError], None]
    ) -> None:
        """See `Member.consume_directly`."""
        del request
        on_done(broker_error(1, "this consumer polls: it has no listener to consume with"))

    # --- inside -------------------------------------------------------------------------------

    def _share_queues(self) -> bool:
        if self._assigned is not None:
            return self._share.take_exactly(tuple(self._assigned))
        return super()._share_queues()

    def _join(self) -> None:
        if self._instance is not None:
            self._instance.refresh_routes()
            self._instance.send_heartbeats()
            self._instance.want_rebalance()

    def _on_messages(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        with self._changed:
            self._arrived.append(_Arrived(owned, messages))
            self._changed.notify_all()

    def _settle(self) -> None:
        """What was polled so far is consumed."""
        polled, self._polled = self._polled, []
        for arrived in polled:
            owned = arrived.owned
            with owned.lock:
                owned.process.remove(arrived.messages)
                is_worth_a_look = owned.control.on_consumed(owned.process)
            if is_worth_a_look:
                self._puller.start(owned)
