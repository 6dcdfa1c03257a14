"""The base of every consumer that shares the queues of its group, whatever it does with messages.

CREATED --start--> RUNNING --end--> SHUT_DOWN             a consumer is started once
   └──────start fails──────> START_FAILED
"""

from __future__ import annotations

import enum
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Final, TypeVar

from rocketmq_client.consumer.allocation import Change
from rocketmq_client.consumer.common.io_thread import RpcHook, now_ms
from rocketmq_client.consumer.common.rates import Rates
from rocketmq_client.consumer.common.settings import ConsumerSettings, wrapped
from rocketmq_client.consumer.membership.client_instance import ClientInstance, Member
from rocketmq_client.consumer.membership.owned_queues import OwnedQueues
from rocketmq_client.consumer.pulling.queue_puller import NoPulls, OwnedQueue, Subscribed
from rocketmq_client.errors import ClientStateError
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, broker_error
from rocketmq_wire.model import ConsumerInfo, QueueId, Subscription
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.members import (
    ConsumeDirectly,
    QueueInfo,
    RunningInfoReply,
)

C = TypeVar("C", bound="GroupConsumer")

_UNBALANCED_DELAY_MS: Final = 1_000
_BROADCASTING_INSTANCE: Final = "DEFAULT"
"""As in RocketMQ's Java client, which names other instances by process and time."""


class ConsumerState(enum.Enum):
    """A consumer's state; the values end the texts of errors."""

    CREATED = "was not started yet: call start() first"
    RUNNING = "is running"
    START_FAILED = "could not be started: make a new consumer"
    SHUT_DOWN = "was shut down: make a new consumer"


class GroupConsumer(Member):
    """A subclass sets `_puller` and `_queues` in `_attach`; `with` starts and ends a consumer."""

    _consume_type: ClassVar[str]
    _puller: NoPulls
    _queues: OwnedQueues
    _threads: int = 0
    """The threads that call the listener, if there is one."""

    def __init__(
        self,
        connection: ConnectionSettings,
        settings: ConsumerSettings,
        instance_name: str | None = None,
        unit_name: str | None = None,
        rpc_hooks: Sequence[RpcHook] = (),
        on_queues: Callable[[Change], None] | None = None,
    ) -> None:
        """Raises ValueError. `rpc_hooks` are called around every request to a server.

        A thread of the consumer calls `on_queues` with queues gained and lost.
        """
        if not connection.name_servers:
            raise ValueError("a consumer group needs name servers: endpoints speak no groups")
        self.settings = settings.on_the_wire
        self._connection = connection
        self._instance_name = instance_name
        self._unit_name = unit_name
        self._rpc_hooks = tuple(rpc_hooks)
        self._on_queues = on_queues
        self._version = time.time_ns() // 1_000_000
        self._subscribed: Mapping[str, Subscribed] = {}
        """Subscriptions by topic; replaced as a whole, because any thread reads it."""
        self._rates = Rates(now_ms())
        self._instance: ClientInstance | None = None
        self._subscribe_to(self.settings.subscriptions)
        self._state = ConsumerState.CREATED
        self._rebalance_lock = threading.Lock()
        """Held while queues are gained and lost, so that shutdown and rebalance do not overlap."""
        self._persist_due_ms = 0
        self._lock_due_ms = 0
        self._rebalance_due_ms = 0
        """When an incomplete rebalance is repeated; 0 if the last one was complete."""

    # --- for the application ------------------------------------------------------------------

    def start(self: C) -> C:
        """Join the group. Raises ClientStateError, and BrokerError if a filter is refused."""
        if self._state is not ConsumerState.CREATED:
            raise self._state_error()
        # Until RUNNING every error leaves this state: a consumer is not started twice.
        self._state = ConsumerState.START_FAILED
        name = self._instance_name
        if self.settings.is_broadcasting:
            # The next process has to find the offset file, whose path contains this name.
            name = name or _BROADCASTING_INSTANCE
        instance = ClientInstance.acquire(self._connection, instance=name, unit=self._unit_name)
        try:
            self._persist_due_ms = now_ms() + self.settings.persist_ms
            self._lock_due_ms = now_ms() + self.settings.lock_ms
            self._attach(instance)
            self._instance = instance
            instance.register(self, self.settings, self._rpc_hooks)
            # A pull with an invalid expression returns every message.
            for topic, wanted in self._subscriptions.items():
                if wanted.kind != "TAG":
                    instance.check_subscription(self.group, topic, wanted)
        except BaseException:
            self._instance = None
            instance.unregister(self)
            instance.release()
            raise
        # Queues are owned only from here on: a failed start must not consume anything.
        self._state = ConsumerState.RUNNING
        instance.want_rebalance()
        return self

    def close(self) -> None:
        """Store the consumed offsets and leave the group; a second call does nothing."""
        with self._rebalance_lock:
            instance, self._instance = self._instance, None
        if instance is None:
            return
        self._state = ConsumerState.SHUT_DOWN
        try:
            self._stop()
            # Offsets are stored before the group is left: the next owner reads them at once.
            with self._rebalance_lock:
                self._queues.lose_all()
            instance.unregister(self)
        finally:
            instance.release()

    def __enter__(self: C) -> C:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()

    @property
    def queues(self) -> tuple[QueueId, ...]:
        """The queues that this member owns now, sorted."""
        return tuple(sorted(self._queues.owned)) if self._instance is not None else ()

    @property
    def _subscriptions(self) -> dict[str, Subscription]:
        return {topic: one.subscription for topic, one in self._subscribed.items()}

    @property
    def state(self) -> ConsumerState:
        return self._state

    def subscribe(self, topic: str, expression: str = "*", kind: str = "TAG") -> None:
        """Share a topic's queues too, or change its filter; every member must do the same.

        Raises BrokerError if a broker refuses the expression.
        """
        wanted, topic = Subscription(expression, kind), wrapped(self.settings.namespace, topic)
        if self._instance is not None and kind != "TAG":
            self._instance.check_subscription(self.group, topic, wanted)
        self._subscribe_to({**self._subscriptions, topic: wanted})

    def unsubscribe(self, topic: str) -> None:
        """Give a topic's queues up."""
        topic = wrapped(self.settings.namespace, topic)
        self._subscribe_to({t: s for t, s in self._subscriptions.items() if t != topic})

    # --- for the client instance: see `Member` ------------------------------------------------

    @property
    def group(self) -> str:
        return self.settings.group

    def topics(self) -> Iterable[str]:
        return tuple(self._subscriptions)

    def consumer_info(self) -> ConsumerInfo:
        return ConsumerInfo(
            self.settings.group,
            self._consume_type,
            self.settings.model.value,
            self.settings.consume_from.value,
            tuple(
                (topic, wanted.expression, wanted.kind, version)
                for topic, (wanted, version) in self._subscribed.items()
            ),
        )

    def rebalance(self) -> None:
        with self._rebalance_lock:
            if self._instance is None or self._state is not ConsumerState.RUNNING:
                return
            is_balanced = self._rebalance_queues()
        self._rebalance_due_ms = 0 if is_balanced else now_ms() + _UNBALANCED_DELAY_MS

    def housekeep(self, now_ms: int) -> int:
        with self._rebalance_lock:
            instance = self._instance
            if instance is None:
                return now_ms + self.settings.persist_ms
            self._rates.sample(now_ms)
            self._queues.store_corrections()
            if now_ms >= self._persist_due_ms:
                self._persist_due_ms = now_ms + self.settings.persist_ms
                self._persist(now_ms)
                if self._queues.drop_stale(now_ms):
                    instance.want_rebalance()
            if now_ms >= self._lock_due_ms:
                self._lock_due_ms = now_ms + self.settings.lock_ms
                self._renew_locks(now_ms)
            if self._rebalance_due_ms and now_ms >= self._rebalance_due_ms:
                self._rebalance_due_ms = 0
                instance.want_rebalance()
            due_ms = min(self._persist_due_ms, self._lock_due_ms)
            return min(due_ms, self._rebalance_due_ms or due_ms)

    def restart(self, offsets: Mapping[QueueId, int]) -> None:
        with self._rebalance_lock:
            if self._instance is not None:
                self._queues.restart_all(offsets)

    def offsets(self) -> Mapping[QueueId, int]:
        return self._queues.offsets()

    def running_info(self) -> RunningInfoReply:
        info, owned, time_ms = self.consumer_info(), self._queues.owned, now_ms()
        shift_ms = time.time_ns() // 1_000_000 - time_ms
        is_orderly = any(one.control.is_orderly for one in owned.values())
        properties = {
            "PROP_CONSUME_TYPE": info.consume_type,
            "PROP_CONSUMEORDERLY": str(is_orderly).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(self._threads),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._rates.started_ms + shift_ms),
            "PROP_CLIENT_VERSION": "PYTHON",
            "consumeMessageBatchMaxSize": str(self.settings.consume_batch_size),
            "pullBatchSize": str(self.settings.pull_batch_size),
            "pullThresholdForQueue": str(self.settings.limits.count_max),
        }
        queues = {queue: _queue_info(one, shift_ms) for queue, one in owned.items()}
        topics = {topic: self._rates.rates(topic, time_ms) for topic, *_ in info.subscriptions}
        return RunningInfoReply(properties, queues, topics, info.subscriptions)

    def consume_directly(
        self, request: ConsumeDirectly, on_done: Callable[[Reply | BrokerError], None]
    ) -> None:
        del request
        remark = "this consumer has no listener that could consume the message"
        on_done(broker_error(ResponseCode.SYSTEM_ERROR, remark))

    # --- for subclasses -----------------------------------------------------------------------

    @abstractmethod
    def _attach(self, instance: ClientInstance) -> None:
        """Set `_puller` and `_queues`, and whatever else the consumer needs to run."""

    def _persist(self, now_ms: int) -> None:
        """Store the consumed offsets, at every period."""
        del now_ms
        self._queues.persist()

    def _renew_locks(self, now_ms: int) -> None:
        del now_ms
        self._queues.renew_locks()

    def _stop(self) -> None:
        """Stop consuming; called once, before queues are given up and the group is left."""

    def _rebalance_queues(self) -> bool:
        """Gain and lose queues; False if the rebalance is to be repeated soon."""
        return self._queues.rebalance(self._subscriptions)

    def _running(self) -> ClientInstance:
        """The client instance. Raises ClientStateError unless the consumer is running."""
        instance = self._instance
        if instance is None:
            raise self._state_error()
        return instance

    def _state_error(self) -> ClientStateError:
        return ClientStateError(f"the consumer of {self.settings.group} {self._state.value}")

    def _subscribe_to(self, subscriptions: Mapping[str, Subscription]) -> None:
        before = self._subscribed
        self._version = max(self._version + 1, time.time_ns() // 1_000_000)
        self._subscribed = {
            topic: before[topic]
            if topic in before and before[topic].subscription == wanted
            else Subscribed(wanted, self._version)
            for topic, wanted in subscriptions.items()
        }
        if self._instance is not None:
            self._announce(self._instance)

    def _announce(self, instance: ClientInstance) -> None:
        """Send the subscriptions to the brokers at once, and rebalance."""
        instance.refresh_routes()
        instance.send_heartbeats()
        instance.want_rebalance()


def _queue_info(owned: OwnedQueue, shift_ms: int) -> QueueInfo:
    """A queue's state for tools; `shift_ms` turns the clock of timers into that of the day."""

    def epoch(time_ms: int) -> int:
        return time_ms + shift_ms if time_ms else 0

    with owned.lock:
        process = owned.process
        first = process.waiting_from if process.count else 0
        return QueueInfo(
            done=process.consumed_offset,
            count=process.count,
            first=first,
            last=first + process.span if process.count else 0,
            size=process.size,
            is_locked=process.is_locked,
            lock_ms=epoch(process.lock_ms if process.is_locked else 0),
            is_dropped=process.is_dropped,
            pull_ms=epoch(process.last_pull_ms),
            consume_ms=epoch(process.last_consume_ms),
        )
