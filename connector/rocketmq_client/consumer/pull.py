"""The pull consumer: the application calls `pull` and says at which offset each pull starts.

    with PullConsumer(connection, ConsumerSettings("g")) as consumer:
        result = consumer.pull(queue, offset)
        consumer.update_offset(queue, result.next_begin)      # committed every 5 s and at close

The consumer is a member of its group for the topics it subscribes to: `queues` are its share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_client.consumer.active_consumer import ActiveConsumer
from rocketmq_client.consumer.allocation import Change
from rocketmq_client.consumer.common.io_thread import RpcHook
from rocketmq_client.consumer.common.messages import ReceivedMessage, decode_pull, tags_of
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.consuming.listener_calls import send_back
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_client.consumer.membership.owned_queues import OwnedQueues
from rocketmq_client.consumer.pulling.queue_puller import HOLD_GRACE_MS, NoPulls
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus

_EVERYTHING: Final = Subscription()


@dataclass(frozen=True, slots=True)
class PullResult:
    """The answer to a pull."""

    status: PullStatus
    """Whether messages were found, and why not."""
    messages: tuple[ReceivedMessage, ...]
    """The messages, in order."""
    next_begin: int
    """The offset for the next pull, also if there are no messages."""
    start: int
    """The queue's first offset."""
    end: int
    """The queue's end."""


class PullConsumer(ActiveConsumer):
    """Pulls from the offsets that its caller names; threads may share it.

    Args:
        connection: The addresses of the cluster, credentials and time-outs.
        settings: The group, its subscriptions and limits.
        instance_name: The instance part of the client id; None: a name of this process, or
            `DEFAULT` in broadcasting.
        unit_name: The unit part of the client id.
        rpc_hooks: Called around each request of this member.
        on_queues: Called with queues gained and lost.
    """

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
        """Raises ValueError. A thread of the consumer calls `on_queues` with gains and losses."""
        super().__init__(connection, settings, instance_name, unit_name, rpc_hooks, on_queues)
        self._consumed: dict[QueueId, int] = {}

    def pull(
        self,
        queue: QueueId,
        offset: int,
        count_max: int = 32,
        *,
        subscription: Subscription = _EVERYTHING,
        timeout_ms: int = 10_000,
    ) -> PullResult:
        """Pull once, without waiting for messages. Raises RocketMQError."""
        request = PullMessages(self.group, queue, offset, count_max, subscription=subscription)
        return self._pull(request, timeout_ms)

    def pull_when_there(
        self,
        queue: QueueId,
        offset: int,
        count_max: int = 32,
        *,
        subscription: Subscription = _EVERYTHING,
    ) -> PullResult:
        """Pull once; the broker holds the pull until a message arrives (`suspend_ms`)."""
        suspend_ms = self.settings.suspend_ms
        request = PullMessages(
            self.group, queue, offset, count_max, subscription=subscription, suspend_ms=suspend_ms
        )
        timeout_ms = max(self.settings.pull_timeout_ms, suspend_ms + HOLD_GRACE_MS)
        return self._pull(request, timeout_ms)

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
        """As `pull`, without waiting: the I/O thread calls `on_done` once.

        `on_done` must not wait; an exception that it raises is logged.
        """
        self._join_topic(queue.topic)
        request = PullMessages(self.group, queue, offset, count_max, subscription=subscription)

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

    def update_offset(self, queue: QueueId, offset: int) -> None:
        """Note a queue's consumed offset; it is committed every 5 s and at `close`."""
        self._join_topic(queue.topic)
        self._consumed[queue] = offset

    def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Let the broker redeliver a message to the group later; False if the broker refuses."""
        return not send_back(self._running().io, self.settings, [message], delay_level)

    # --- for the client instance: see `Member` ------------------------------------------------

    def offsets(self) -> Mapping[QueueId, int]:
        return dict(self._consumed)

    def _attach(self, instance: ClientInstance) -> None:
        self._puller = NoPulls(instance.io, self.settings)
        self._queues = OwnedQueues(
            instance, self.settings, self._puller, on_change=self._on_queues, commits=False
        )

    def _stop(self) -> None:
        self._persist(0)

    def _persist(self, now_ms: int) -> None:
        del now_ms
        self._queues.offset_store.store(self.offsets())

    def _pull(self, request: PullMessages, timeout_ms: int) -> PullResult:
        self._join_topic(request.queue.topic)
        io, broker = self._running().io, request.queue.broker
        return self._result(request, io.call(request, broker=broker, timeout_ms=timeout_ms))

    def _result(self, request: PullMessages, reply: Reply) -> PullResult:
        """Raises CorruptRecordError."""
        assert isinstance(reply, PullReply)
        tags = tags_of(request.subscription)
        messages, begin = decode_pull(reply, request.queue, tags, self.settings.namespace)
        return PullResult(reply.status, tuple(messages), begin, reply.start, reply.end)
