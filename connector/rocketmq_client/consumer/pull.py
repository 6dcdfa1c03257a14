"""The pull consumer: every pull is asked for by its owner, who also says where the next begins.

    with PullConsumer(connection, ConsumerSettings("g")) as consumer:
        result = consumer.pull(queue, offset)
        consumer.update_offset(queue, result.next_begin)      # stored every 5 s and at the end

It is a member of its group for the topics it subscribes to: `queues` are then its share of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_client.consumer.active_consumer import ActiveConsumer
from rocketmq_client.consumer.allocation import Change
from rocketmq_client.consumer.common.io_thread import RpcHook, now_ms
from rocketmq_client.consumer.common.messages import ReceivedMessage, decode_messages
from rocketmq_client.consumer.common.settings import ConsumerSettings, unwrapped, wrapped
from rocketmq_client.consumer.consuming.send_backs import send_back
from rocketmq_client.consumer.group_consumer import ConsumerState
from rocketmq_client.consumer.membership.owned_queues import OwnedQueues
from rocketmq_client.consumer.pulling.queue_puller import NoPulls
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, RocketMQError, broker_error
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.members import ConsumeDirectly
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus

# A real broker looks for expired holds every five seconds only.
_HOLD_GRACE_MS: Final = 10_000
_EVERYTHING: Final = Subscription()


@dataclass(frozen=True, slots=True)
class PullResult:
    """What a pull found."""

    status: PullStatus
    messages: tuple[ReceivedMessage, ...]
    next_begin: int
    """Where the next pull is to begin, also when there were no messages."""
    start: int
    """The queue's first offset."""
    end: int
    """The queue's end."""


class PullConsumer(ActiveConsumer):
    """May be used by any number of threads."""

    _consume_type = "CONSUME_ACTIVELY"

    def __init__(
        self,
        connection: ConnectionSettings,
        settings: ConsumerSettings,
        *,
        instance_name: str | None = None,
        unit_name: str | None = None,
        rpc_hooks: Sequence[RpcHook] = (),
        on_queues: Callable[[Change], None] | None = None,
    ) -> None:
        """Raises ValueError. `on_queues` is told of queues gained and lost."""
        super().__init__(
            connection,
            settings,
            instance_name=instance_name,
            unit_name=unit_name,
            rpc_hooks=rpc_hooks,
        )
        self._on_queues = on_queues
        self._consumed: dict[QueueId, int] = {}
        self._lock = threading.Lock()

    # --- for its owner ------------------------------------------------------------------------

    def start(self) -> PullConsumer:
        """Join the group. Raises ClientStateError."""
        instance = self._acquire()
        self._puller = NoPulls(instance.io, self.settings)
        self._queues = OwnedQueues(
            instance,
            self.settings,
            self._puller,
            is_orderly=False,
            on_change=self._on_queues,
            commits=False,
        )
        self._persist_due_ms = now_ms() + self.settings.persist_ms
        self._register(instance)
        return self

    def pull(
        self,
        queue: QueueId,
        offset: int,
        count_max: int = 32,
        *,
        subscription: Subscription = _EVERYTHING,
        timeout_ms: int = 10_000,
    ) -> PullResult:
        """Ask once, without waiting for messages. Raises RocketMQError."""
        request = self._request(queue, offset, count_max, subscription, None)
        io = self._running().io
        return self._result(request, io.call(request, broker=queue.broker, timeout_ms=timeout_ms))

    def pull_when_there(
        self,
        queue: QueueId,
        offset: int,
        count_max: int = 32,
        *,
        subscription: Subscription = _EVERYTHING,
    ) -> PullResult:
        """Ask, and let the broker hold the pull until there is a message (`suspend_ms`)."""
        settings = self.settings
        request = self._request(queue, offset, count_max, subscription, settings.suspend_ms)
        timeout_ms = max(settings.pull_timeout_ms, settings.suspend_ms + _HOLD_GRACE_MS)
        io = self._running().io
        return self._result(request, io.call(request, broker=queue.broker, timeout_ms=timeout_ms))

    def pull_async(
        self,
        queue: QueueId,
        offset: int,
        on_done: Callable[[PullResult | RocketMQError], None],
        count_max: int = 32,
        *,
        subscription: Subscription = _EVERYTHING,
        timeout_ms: int = 10_000,
    ) -> None:
        """`pull` without waiting: `on_done` is called once, in the thread of the connections.

        It must not wait there; what it raises is logged.
        """
        request = self._request(queue, offset, count_max, subscription, None)

        def finish(reply: Reply | RocketMQError) -> None:
            result: PullResult | RocketMQError
            try:
                result = reply if isinstance(reply, RocketMQError) else self._result(request, reply)
            except RocketMQError as error:
                result = error
            on_done(result)

        self._running().io.submit(
            request, broker=queue.broker, timeout_ms=timeout_ms, on_done=finish
        )

    def subscribe(self, topic: str, expression: str = "*", kind: str = "TAG") -> None:
        """Take part in sharing a topic's queues: `queues` has those that are this member's."""
        topic = wrapped(self.settings.namespace, topic)
        self._subscribe_to({**self._subscriptions, topic: Subscription(expression, kind)})

    def update_offset(self, queue: QueueId, offset: int) -> None:
        """Note how far a queue is consumed: stored every 5 s, and when the consumer is closed."""
        self._know(queue.topic)
        with self._lock:
            self._consumed[queue] = offset

    def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Have a message delivered to the group again, later; False if no broker took it."""
        settings = self.settings
        return not send_back(
            self._running().io,
            settings,
            [message],
            delay_level=delay_level,
            attempts_max=settings.attempts,
        )

    def close(self) -> None:
        """Store the progress and leave the group. Again: harmless."""
        with self._rebalance_lock:
            instance, self._instance = self._instance, None
        if instance is None:
            return
        self._state = ConsumerState.SHUT_DOWN
        try:
            self._persist()
            instance.unregister(self)
        finally:
            instance.release()

    def _end(self, *, has_failed: bool) -> None:
        del has_failed
        self.close()

    # --- for its instance ---------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        """See `Member.topics`."""
        return {*self._subscriptions, *self._asked_topics}

    def offsets(self) -> Mapping[QueueId, int]:
        """See `Member.offsets`."""
        return dict(self._consumed)

    def housekeep(self, now_ms: int) -> int:
        """See `Member.housekeep`."""
        if now_ms >= self._persist_due_ms:
            self._persist_due_ms = now_ms + self.settings.persist_ms
            if self._instance is not None:
                self._persist()
        return self._persist_due_ms

    def consume_directly(
        self, request: ConsumeDirectly, on_done: Callable[[Reply | BrokerError], None]
    ) -> None:
        """See `Member.consume_directly`."""
        del request
        on_done(
            broker_error(
                ResponseCode.SYSTEM_ERROR, "this consumer pulls: it has no listener to consume with"
            )
        )

    # --- inside -------------------------------------------------------------------------------

    def _persist(self) -> None:
        with self._lock:
            offsets = dict(self._consumed)
        self._queues.offset_store.store(offsets)

    def _request(
        self,
        queue: QueueId,
        offset: int,
        count_max: int,
        subscription: Subscription,
        suspend_ms: int | None,
    ) -> PullMessages:
        self._know(queue.topic)
        return PullMessages(
            self.group, queue, offset, count_max, subscription=subscription, suspend_ms=suspend_ms
        )

    def _result(self, request: PullMessages, reply: Reply) -> PullResult:
        """Raises CorruptRecordError."""
        assert isinstance(reply, PullReply)
        queue, wanted = request.queue, request.subscription
        tags = TagExpression.parse(wanted.expression).tags if wanted.kind == "TAG" else frozenset()
        messages: list[ReceivedMessage] = []
        for body in reply.records:
            messages += decode_messages(body, broker=queue.broker, topic=queue.topic, tags=tags)
        for message in messages if self.settings.namespace else ():
            message.topic = unwrapped(self.settings.namespace, message.topic)
        return PullResult(reply.status, tuple(messages), reply.next_begin, reply.start, reply.end)
