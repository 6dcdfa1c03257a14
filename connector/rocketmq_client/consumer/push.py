"""The push consumer: a listener is called with messages as they arrive, concurrently or in order.

    with PushConsumer(connection, settings, listener) as consumer: ...

Messages count as consumed when the listener said so; what it had not finished when the process
ended comes again: at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rocketmq_client.consumer.common.context_manager import ConsumerContext
from rocketmq_client.consumer.common.io_thread import RpcHook, now_ms
from rocketmq_client.consumer.common.listener import (
    ConcurrentListener,
    ConsumeCounts,
    ConsumeHook,
    OrderlyListener,
)
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings, PopSettings, wrapped
from rocketmq_client.consumer.consuming.concurrent import ConcurrentConsumption
from rocketmq_client.consumer.consuming.listener_calls import consume_for_tool
from rocketmq_client.consumer.consuming.orderly import OrderlyConsumption
from rocketmq_client.consumer.consuming.thread_pool import ConsumePool
from rocketmq_client.consumer.group_consumer import ConsumerState, GroupConsumer
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_client.consumer.membership.owned_queues import OwnedQueues
from rocketmq_client.consumer.popping.acks import PopAcks
from rocketmq_client.consumer.popping.assignment import PopAssignment
from rocketmq_client.consumer.popping.consumption import PopConsumption
from rocketmq_client.consumer.popping.puller import PopPuller
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue, QueuePuller
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, broker_error
from rocketmq_wire.model import RETRY_PREFIX, QueueId, Subscription
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.members import ConsumeDirectly


class _Pops(NamedTuple):
    """What popping takes besides pulling."""

    assignment: PopAssignment
    consumption: PopConsumption
    acks: PopAcks


class PushConsumer(GroupConsumer, ConsumerContext):
    """One member of a group. Exactly one of the two listeners is given."""

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
        """Raises ValueError. Nothing is connected before `start`.

        With `pop` the brokers say which queues this member consumes and whether it pulls or pops
        them (`mqadmin setConsumeMode`), and it changes over while it runs.
        """
        if (listener is None) is (orderly_listener is None):
            raise ValueError("give a listener, or an orderly_listener, and not both")
        if not settings.subscriptions:
            raise ValueError("a push consumer needs a subscription: name a topic")
        if pop is not None and (listener is None or settings.is_broadcasting):
            raise ValueError("pop is for concurrent listeners of groups that share their messages")
        super().__init__(
            connection,
            settings,
            instance_name=instance_name,
            unit_name=unit_name,
            rpc_hooks=rpc_hooks,
        )
        self._listener, self._orderly_listener = listener, orderly_listener
        self._hooks = tuple(hooks)
        self._pop_settings = pop
        self._pops: _Pops | None = None
        if not settings.is_broadcasting:
            # What failed comes again through the group's own topic.
            self._subscriptions[RETRY_PREFIX + self.settings.group] = Subscription()
        self._lock_due_ms = 0

    # --- for its owner ------------------------------------------------------------------------

    def start(self) -> PushConsumer:
        """Join the group; messages come soon after. Raises ClientStateError."""
        instance = self._acquire()
        settings, is_orderly = self.settings, self._orderly_listener is not None
        self._pool = ConsumePool(f"rocketmq-consume-{settings.group}", settings.threads)
        self._puller = QueuePuller(
            instance.io,
            settings,
            is_orderly=is_orderly,
            on_messages=self._on_messages,
            on_illegal=self._on_illegal,
            subscription_of=lambda topic: self._subscriptions.get(topic),
        )
        self._queues = OwnedQueues(instance, settings, self._puller, is_orderly=is_orderly)
        self._consumption = self._consumption_of(instance)
        if self._pop_settings is not None:
            self._pops = self._pops_of(instance, self._pop_settings)
        self._persist_due_ms = now_ms() + 2 * settings.persist_ms
        self._lock_due_ms = now_ms() + settings.lock_ms
        try:
            self._register(instance)
        except BaseException:
            self._pool.shut_down(settings.shutdown_wait_ms)
            raise
        return self

    def shut_down(self) -> None:
        """Stop pulling, let listeners end, store the progress, leave the group. Again: harmless."""
        with self._rebalance_lock:
            instance, self._instance = self._instance, None
        if instance is None:
            return
        self._state = ConsumerState.SHUT_DOWN
        try:
            self._puller.is_suspended = True
            self._consumption.stop()
            if self._pops is not None:
                self._pops.assignment.lose_all()
            self._pool.shut_down(self.settings.shutdown_wait_ms)
            if self._pops is not None:
                self._pops.consumption.hand_back()
                self._pops.acks.finish(self.settings.request_timeout_ms)
            # Progress before the farewell: whoever takes over asks for it at once.
            with self._rebalance_lock:
                self._queues.lose_all()
            instance.unregister(self)
        finally:
            instance.release()

    def subscribe(self, topic: str, expression: str = "*", kind: str = "TAG") -> None:
        """Share another topic's queues, or filter one anew; every member is to do the same."""
        wanted, topic = Subscription(expression, kind), wrapped(self.settings.namespace, topic)
        if self._instance is not None and kind != "TAG":
            self._instance.check_subscription(self.group, topic, wanted)
        self._subscribe_to({**self._subscriptions, topic: wanted})

    def unsubscribe(self, topic: str) -> None:
        """Give a topic's queues up."""
        topic = wrapped(self.settings.namespace, topic)
        self._subscribe_to({t: s for t, s in self._subscriptions.items() if t != topic})

    def suspend(self) -> None:
        """Pull no more until `resume`; what was pulled is still consumed."""
        self._puller.is_suspended = True

    def resume(self) -> None:
        """Pull again, within a second."""
        self._puller.is_suspended = False

    def resize(self, threads: int) -> None:
        """Have so many threads call the listener. Raises ValueError."""
        if not 1 <= threads <= 1_000:
            raise ValueError(f"threads must be 1 to 1000, got {threads}")
        self._pool.resize(threads)

    @property
    def client_id(self) -> str:
        """Who this member is to the brokers; empty before the start."""
        return self._instance.client_id if self._instance is not None else ""

    @property
    def popped_queues(self) -> tuple[QueueId, ...]:
        """The queues that this member pops now, sorted; index -1 is any queue of a broker."""
        return tuple(sorted(self._pops.assignment.owned)) if self._pops is not None else ()

    @property
    def counts(self) -> ConsumeCounts:
        """What the listener did."""
        return self._consumption.counts

    def _end(self, *, has_failed: bool) -> None:
        del has_failed
        self.shut_down()

    # --- for its instance ---------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        """See `Member.topics`."""
        return tuple(self._subscriptions)

    def housekeep(self, now_ms: int) -> int:
        """See `Member.housekeep`."""
        with self._rebalance_lock:
            return self._housekeep(now_ms)

    def _housekeep(self, now_ms: int) -> int:
        settings, instance = self.settings, self._instance
        if instance is None:
            return now_ms + settings.persist_ms
        self._queues.store_corrections()
        if now_ms >= self._persist_due_ms:
            self._persist_due_ms = now_ms + settings.persist_ms
            self._queues.persist()
            self._consumption.expire(now_ms)
            if self._queues.drop_stale(now_ms):
                instance.want_rebalance()
        if now_ms >= self._lock_due_ms:
            self._lock_due_ms = now_ms + settings.lock_ms
            self._queues.renew_locks()
        if self._retry_due_ms and now_ms >= self._retry_due_ms:
            self._retry_due_ms = 0
            instance.want_rebalance()
        dues = [self._persist_due_ms, self._lock_due_ms]
        return min([*dues, self._retry_due_ms] if self._retry_due_ms else dues)

    def consume_directly(
        self, request: ConsumeDirectly, on_done: Callable[[Reply | BrokerError], None]
    ) -> None:
        """See `Member.consume_directly`."""
        listener = self._listener or self._orderly_listener
        assert listener is not None
        is_orderly = self._listener is None
        if not self._pool.put(
            lambda: on_done(consume_for_tool(listener, request, is_orderly=is_orderly))
        ):
            on_done(
                broker_error(
                    ResponseCode.SYSTEM_ERROR, "no thread can take the message: try again later"
                )
            )

    # --- inside -------------------------------------------------------------------------------

    def _rebalance_queues(self) -> bool:
        if self._pops is None:
            return super()._rebalance_queues()
        return self._queues.rebalance(self._pops.assignment.rebalance(self._subscriptions))

    def _pops_of(self, instance: ClientInstance, pop: PopSettings) -> _Pops:
        io, settings, pool = instance.io, self.settings, self._pool
        assert self._listener is not None
        acks = PopAcks(io, settings.group, settings.request_timeout_ms)
        consumption = PopConsumption(
            *(io, settings, pop, self._listener, pool, self._hooks),
            acks=acks,
            counts=self._consumption.counts,
        )
        puller = PopPuller(
            io,
            pop,
            acks,
            group=settings.group,
            namespace=settings.namespace,
            consume_from=settings.consume_from,
            on_popped=consumption.on_popped,
            on_late=consumption.return_soon,
            is_suspended=lambda: self._puller.is_suspended,
        )
        return _Pops(PopAssignment(instance, settings, puller), consumption, acks)

    def _consume_counts(self) -> ConsumeCounts:
        return self.counts

    def _consumption_of(
        self, instance: ClientInstance
    ) -> ConcurrentConsumption | OrderlyConsumption:
        io, settings, pool, hooks = instance.io, self.settings, self._pool, self._hooks
        if self._listener is not None:
            return ConcurrentConsumption(
                io, settings, self._listener, pool, hooks, pull_again=self._puller.start
            )
        assert self._orderly_listener is not None
        return OrderlyConsumption(
            io, settings, self._orderly_listener, pool, hooks, pull_again=self._puller.start
        )

    def _on_messages(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        self._consumption.on_messages(owned, messages)

    def _on_illegal(self, owned: OwnedQueue, offset: int) -> None:
        self._queues.correct(owned, offset)
