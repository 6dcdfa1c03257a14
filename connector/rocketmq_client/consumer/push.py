"""The push consumer calls a listener with messages as they arrive, concurrently or in order.

    with PushConsumer(connection, settings, listener) as consumer: ...

A message counts as consumed when the listener returned success. If the process ends before that,
the group gets the message again: delivery is at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rocketmq_client.consumer.common.io_thread import RpcHook
from rocketmq_client.consumer.common.listener import (
    ConcurrentListener,
    ConsumeHook,
    OrderlyListener,
)
from rocketmq_client.consumer.common.rates import ConsumeCounts
from rocketmq_client.consumer.common.settings import ConsumerSettings, PopSettings
from rocketmq_client.consumer.consuming.consumption import (
    ConcurrentConsumption,
    Consumption,
    OrderlyConsumption,
)
from rocketmq_client.consumer.consuming.listener_calls import ListenerCalls
from rocketmq_client.consumer.consuming.thread_pool import ConsumePool
from rocketmq_client.consumer.group_consumer import GroupConsumer
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_client.consumer.membership.owned_queues import OwnedQueues
from rocketmq_client.consumer.popping.consumption import PopConsumption
from rocketmq_client.consumer.popping.puller import PopPuller
from rocketmq_client.consumer.pulling.queue_puller import QueuePuller
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, broker_error
from rocketmq_wire.model import RETRY_PREFIX, QueueId, Subscription
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.members import ConsumeDirectly

P = TypeVar("P", bound="PushConsumer")


class PushConsumer(GroupConsumer):
    """A member of a consumer group that calls a listener with messages.

    Args:
        connection: The addresses of the cluster, credentials and time-outs.
        settings: The group, its subscriptions and limits.
        listener: Called with messages and a context, in several threads.
        orderly_listener: The same, for one queue at a time and in order.
        instance_name: The instance part of the client id; None: a name of this process, or
            `DEFAULT` in broadcasting.
        unit_name: The unit part of the client id.
        rpc_hooks: Called around each request of this member.
        hooks: Called before and after each call of the listener.
        pop: How to pop if the brokers ask for it; None: the member only pulls.
    """

    _consume_type = "CONSUME_PASSIVELY"
    _puller: QueuePuller

    def __init__(
        self,
        connection: ConnectionSettings,
        settings: ConsumerSettings,
        listener: ConcurrentListener | None = None,
        *,
        orderly_listener: OrderlyListener | None = None,
        instance_name: str | None = None,
        unit_name: str | None = None,
        rpc_hooks: Sequence[RpcHook] = (),
        hooks: Sequence[ConsumeHook] = (),
        pop: PopSettings | None = None,
    ) -> None:
        """Takes exactly one listener, and connects only in `start`. Raises ValueError.

        With `pop` the brokers assign queues to this member and decide whether it pulls or pops them
        (`mqadmin setConsumeMode`); the member follows changes while it runs.
        """
        if (listener is None) is (orderly_listener is None):
            raise ValueError("give a listener, or an orderly_listener, and not both")
        if not settings.subscriptions:
            raise ValueError("a push consumer needs a subscription: name a topic")
        if pop is not None and (listener is None or settings.is_broadcasting):
            raise ValueError("pop is for concurrent listeners of groups that share their messages")
        super().__init__(connection, settings, instance_name, unit_name, rpc_hooks)
        either = orderly_listener if listener is None else listener
        assert either is not None
        self._is_orderly = listener is None
        self._calls = ListenerCalls(
            self.settings, either, tuple(hooks), is_orderly=self._is_orderly, rates=self._rates
        )
        self._threads = settings.threads
        self._pop_settings = pop
        self._pops: PopPuller | None = None
        if not settings.is_broadcasting:
            # The broker redelivers failed messages through the group's retry topic.
            retries = {RETRY_PREFIX + self.settings.group: Subscription()}
            self._subscribe_to({**self._subscriptions, **retries})

    # --- for the application ------------------------------------------------------------------

    def start(self: P) -> P:
        super().start()
        self._pool.resize(self.settings.threads)
        return self

    def shut_down(self) -> None:
        """Stop pulling, let listeners end, commit, leave the group; a second call does nothing."""
        self.close()

    def suspend(self) -> None:
        """Stop pulling until `resume`; messages already pulled are still consumed."""
        self._puller.is_suspended = True

    def resume(self) -> None:
        """Pull again, within a second."""
        self._puller.is_suspended = False

    def resize(self, threads: int) -> None:
        """Change the number of threads that call the listener. Raises ValueError."""
        if not 1 <= threads <= 1_000:
            raise ValueError(f"threads must be 1 to 1000, got {threads}")
        self._threads = threads
        self._pool.resize(threads)

    @property
    def client_id(self) -> str:
        """This member's id at the brokers; empty before the start."""
        return self._instance.client_id if self._instance is not None else ""

    @property
    def popped_queues(self) -> tuple[QueueId, ...]:
        """The queues that this member pops now, sorted; index -1 is any queue of a broker."""
        return tuple(sorted(self._pops.owned)) if self._pops is not None else ()

    @property
    def counts(self) -> ConsumeCounts:
        """The counts of all topics together."""
        return self._calls.counts

    # --- for the client instance: see `Member` ------------------------------------------------

    def consume_directly(
        self, request: ConsumeDirectly, on_done: Callable[[Reply | BrokerError], None]
    ) -> None:
        if not self._pool.put(lambda: on_done(self._calls.consume_for_tool(request))):
            remark = "no thread can take the message: try again later"
            on_done(broker_error(ResponseCode.SYSTEM_ERROR, remark))

    def _attach(self, instance: ClientInstance) -> None:
        io, settings, is_orderly = instance.io, self.settings, self._is_orderly
        # As in Java's client, the first commit comes a period later than the others.
        self._persist_due_ms += settings.persist_ms
        # Threads begin after the start, so that a failed one leaves none.
        self._pool = ConsumePool(f"rocketmq-consume-{settings.group}", 0, io)
        self._puller = QueuePuller(
            io,
            settings,
            is_orderly=is_orderly,
            on_messages=lambda owned, messages: self._consumption.on_messages(owned, messages),
            on_illegal=lambda owned, offset: self._queues.correct(owned, offset),
            subscription_of=lambda topic: self._subscribed.get(topic),
            posts_subscription=settings.post_subscription_when_pull,
            on_unregistered=instance.want_heartbeat,
            rates=self._rates,
        )
        self._queues = OwnedQueues(instance, settings, self._puller, is_orderly=is_orderly)
        kind = OrderlyConsumption if is_orderly else ConcurrentConsumption
        self._consumption: Consumption = kind(io, self._calls, self._pool, self._puller.start)
        if (pop := self._pop_settings) is not None:
            popped = PopConsumption(io, self._calls, self._pool, pop)
            self._pops = PopPuller(
                instance, settings, pop, popped, lambda: self._puller.is_suspended
            )

    def _persist(self, now_ms: int) -> None:
        super()._persist(now_ms)
        self._consumption.expire(now_ms)

    def _stop(self) -> None:
        self._puller.is_stopping = True
        self._consumption.stop()
        if self._pops is not None:
            self._pops.stop()
        self._pool.shut_down(self.settings.shutdown_wait_ms)
        if self._pops is not None:
            self._pops.consumption.finish()

    def _rebalance_queues(self) -> bool:
        if self._pops is None:
            return super()._rebalance_queues()
        return self._queues.rebalance(self._pops.rebalance(self._subscriptions))
