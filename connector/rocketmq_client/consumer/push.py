"""The push consumer calls a listener with messages as they arrive, concurrently or in order.

    with PushConsumer(connection, settings, listener) as consumer: ...

A message counts as consumed when the listener returned success. If the process ends before that,
the group gets the message again: delivery is at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from rocketmq_client.consumer.common.io_thread import RpcHook
from rocketmq_client.consumer.common.listener import (
    ConcurrentListener,
    ConsumeCounts,
    ConsumeHook,
    Listener,
    OrderlyListener,
)
from rocketmq_client.consumer.common.settings import ConsumerSettings, PopSettings
from rocketmq_client.consumer.consuming.concurrent import ConcurrentConsumption
from rocketmq_client.consumer.consuming.consumption import Consumption
from rocketmq_client.consumer.consuming.listener_calls import consume_for_tool
from rocketmq_client.consumer.consuming.orderly import OrderlyConsumption
from rocketmq_client.consumer.consuming.thread_pool import ConsumePool
from rocketmq_client.consumer.group_consumer import GroupConsumer
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_client.consumer.membership.owned_queues import OwnedQueues
from rocketmq_client.consumer.popping.acks import PopAcks
from rocketmq_client.consumer.popping.assignment import PopAssignment
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


class _Pops(NamedTuple):
    """The parts of a consumer that also pops."""

    assignment: PopAssignment
    consumption: PopConsumption
    acks: PopAcks


class PushConsumer(GroupConsumer):
    """A member with a listener."""

    _consume_type = "CONSUME_PASSIVELY"

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
        self._listener = listener
        self._orderly_listener = orderly_listener
        self._hooks = tuple(hooks)
        self._pop_settings = pop
        self._pops: _Pops | None = None
        if not settings.is_broadcasting:
            # The broker redelivers failed messages through the group's retry topic.
            self._subscriptions[RETRY_PREFIX + self.settings.group] = Subscription()

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
        self._pool.resize(threads)

    @property
    def client_id(self) -> str:
        """This member's id at the brokers; empty before the start."""
        return self._instance.client_id if self._instance is not None else ""

    @property
    def popped_queues(self) -> tuple[QueueId, ...]:
        """The queues that this member pops now, sorted; index -1 is any queue of a broker."""
        return tuple(sorted(self._pops.assignment.owned)) if self._pops is not None else ()

    @property
    def counts(self) -> ConsumeCounts:
        """The listener's counts."""
        return self._consumption.counts

    # --- for the client instance: see `Member` ------------------------------------------------

    def consume_directly(
        self, request: ConsumeDirectly, on_done: Callable[[Reply | BrokerError], None]
    ) -> None:
        listener, is_orderly = self._any_listener, self._listener is None
        if not self._pool.put(
            lambda: on_done(consume_for_tool(listener, request, is_orderly=is_orderly))
        ):
            remark = "no thread can take the message: try again later"
            on_done(broker_error(ResponseCode.SYSTEM_ERROR, remark))

    # --- inside -------------------------------------------------------------------------------

    def _attach(self, instance: ClientInstance) -> None:
        settings, is_orderly = self.settings, self._orderly_listener is not None
        # As in Java's client, the first commit comes a period later than the others.
        self._persist_due_ms += settings.persist_ms
        # Threads begin after the start, so that a failed one leaves none.
        self._pool = ConsumePool(f"rocketmq-consume-{settings.group}", 0)
        self._puller = QueuePuller(
            instance.io,
            settings,
            is_orderly=is_orderly,
            on_messages=lambda owned, messages: self._consumption.on_messages(owned, messages),
            on_illegal=lambda owned, offset: self._queues.correct(owned, offset),
            subscription_of=lambda topic: self._subscriptions.get(topic),
        )
        self._queues = OwnedQueues(instance, settings, self._puller, is_orderly=is_orderly)
        self._consumption = self._consumption_of(instance)
        if self._pop_settings is not None:
            self._pops = self._pops_of(instance, self._pop_settings)

    def _persist(self, now_ms: int) -> None:
        super()._persist(now_ms)
        self._consumption.expire(now_ms)

    def _stop(self) -> None:
        self._puller.is_suspended = True
        self._consumption.stop()
        if self._pops is not None:
            self._pops.assignment.lose_all()
        self._pool.shut_down(self.settings.shutdown_wait_ms)
        if self._pops is not None:
            self._pops.consumption.hand_back()
            self._pops.acks.finish(self.settings.request_timeout_ms)

    @property
    def _any_listener(self) -> Listener:
        listener = self._listener or self._orderly_listener
        assert listener is not None
        return listener

    def _rebalance_queues(self) -> bool:
        if self._pops is None:
            return super()._rebalance_queues()
        return self._queues.rebalance(self._pops.assignment.rebalance(self._subscriptions))

    def _pops_of(self, instance: ClientInstance, pop: PopSettings) -> _Pops:
        io, settings = instance.io, self.settings
        assert self._listener is not None
        acks = PopAcks(io, settings.group, settings.request_timeout_ms)
        consumption = PopConsumption(
            io,
            settings,
            pop,
            self._listener,
            self._pool,
            self._hooks,
            acks=acks,
            counts=self._consumption.counts,
        )
        puller = PopPuller(
            io,
            pop,
            acks,
            settings,
            on_popped=consumption.on_popped,
            on_unowned=consumption.return_soon,
            is_suspended=lambda: self._puller.is_suspended,
        )
        return _Pops(PopAssignment(instance, settings, puller), consumption, acks)

    def _consume_counts(self) -> ConsumeCounts:
        return self.counts

    def _consumption_of(self, instance: ClientInstance) -> Consumption:
        kind = OrderlyConsumption if self._listener is None else ConcurrentConsumption
        return kind(
            instance.io,
            self.settings,
            self._any_listener,
            self._pool,
            self._hooks,
            resume_pulls=self._puller.start,
        )
