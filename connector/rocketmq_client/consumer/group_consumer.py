"""What every consumer of a group is: a member that shares queues, whatever becomes of messages.

CREATED --start--> RUNNING --the end--> SHUT_DOWN         a consumer is started once
   └──────start fails──────> START_FAILED
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from rocketmq_client.consumer.common.io_thread import RpcHook, now_ms
from rocketmq_client.consumer.common.listener import ConsumeCounts
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.membership.client_instance import (
    ClientInstance,
    ClientStateError,
    Member,
)
from rocketmq_client.consumer.membership.owned_queues import OwnedQueues
from rocketmq_client.consumer.membership.running_info import running_info
from rocketmq_client.consumer.pulling.queue_puller import QueuePuller
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import ConsumerInfo, QueueId, Subscription
from rocketmq_wire.requests.members import RunningInfoReply

_UNBALANCED_RETRY_MS: Final = 1_000
_BROADCASTING_INSTANCE: Final = "DEFAULT"
"""As in RocketMQ's Java client, which names all others by process and time."""


class ConsumerState(enum.Enum):
    """Where a consumer is in its life."""

    CREATED = "was not started yet: call start() first"
    RUNNING = "is running"
    START_FAILED = "could not be started: make a new consumer"
    SHUT_DOWN = "was shut down: make a new consumer"


class GroupConsumer(Member):
    """Joins with `_acquire` and `_register`; in between `_puller` and `_queues` are made."""

    _consume_type: ClassVar[str]
    _puller: QueuePuller
    _queues: OwnedQueues

    def __init__(
        self,
        connection: ConnectionSettings,
        settings: ConsumerSettings,
        *,
        instance_name: str | None,
        unit_name: str | None,
        rpc_hooks: Sequence[RpcHook] = (),
    ) -> None:
        """Raises ValueError. `rpc_hooks` are called around every request to a server."""
        self._rpc_hooks = tuple(rpc_hooks)
        if not connection.name_servers:
            raise ValueError("a consumer group needs name servers: endpoints speak no groups")
        self.settings, self._connection = settings.on_the_wire, connection
        self._names = instance_name, unit_name
        self._subscriptions: dict[str, Subscription] = dict(self.settings.subscriptions)
        self._version = time.time_ns() // 1_000_000
        self._instance: ClientInstance | None = None
        self._state = ConsumerState.CREATED
        self._rebalance_lock = threading.Lock()
        """Held while queues are gained and lost, so that the end does not meet a rebalance."""
        self._persist_due_ms = self._retry_due_ms = 0

    @property
    def queues(self) -> tuple[QueueId, ...]:
        """The queues that this member has now, sorted."""
        return tuple(sorted(self._queues.owned)) if self._instance is not None else ()

    @property
    def state(self) -> ConsumerState:
        """Where it is in its life."""
        return self._state

    # --- for its instance ---------------------------------------------------------------------

    @property
    def group(self) -> str:
        """See `Member.group`."""
        return self.settings.group

    def consumer_info(self) -> ConsumerInfo:
        """See `Member.consumer_info`."""
        return ConsumerInfo(
            self.settings.group,
            self._consume_type,
            self.settings.model.value,
            self.settings.consume_from.value,
            tuple(
                (topic, wanted.expression, wanted.kind, self._version)
                for topic, wanted in self._subscriptions.items()
            ),
        )

    def rebalance(self) -> None:
        """See `Member.rebalance`."""
        with self._rebalance_lock:
            if self._instance is None or self._state is not ConsumerState.RUNNING:
                return
            is_balanced = self._rebalance_queues()
        self._retry_due_ms = 0 if is_balanced else now_ms() + _UNBALANCED_RETRY_MS

    def restart(self, offsets: Mapping[QueueId, int]) -> None:
        """See `Member.restart`."""
        with self._rebalance_lock:
            if self._instance is not None:
                self._queues.restart_all(offsets)

    def offsets(self) -> Mapping[QueueId, int]:
        """See `Member.offsets`."""
        return self._queues.offsets()

    def running_info(self) -> RunningInfoReply:
        """See `Member.running_info`."""
        return running_info(
            self.settings,
            self.consumer_info(),
            self._queues.owned,
            self._puller.counts,
            self._consume_counts(),
        )

    # --- inside -------------------------------------------------------------------------------

    def _consume_counts(self) -> ConsumeCounts | None:
        """What a listener did, where there is one."""
        return None

    def _rebalance_queues(self) -> bool:
        """Gain and lose queues; False when that is to be tried again soon."""
        return self._queues.rebalance(self._subscriptions)

    def _running(self) -> ClientInstance:
        """The instance. Raises ClientStateError unless the consumer is running."""
        instance = self._instance
        if instance is None:
            raise self._state_error()
        return instance

    def _state_error(self) -> ClientStateError:
        return ClientStateError(f"the consumer of {self.settings.group} {self._state.value}")

    def _subscribe_to(self, subscriptions: Mapping[str, Subscription]) -> None:
        """Share the queues of these topics from now on."""
        self._subscriptions = dict(subscriptions)
        self._version = max(self._version + 1, time.time_ns() // 1_000_000)
        if self._instance is not None:
            self._join(self._instance)

    def _join(self, instance: ClientInstance) -> None:
        """Have the brokers know at once what is subscribed to."""
        instance.refresh_routes()
        instance.send_heartbeats()
        instance.want_rebalance()

    def _acquire(self) -> ClientInstance:
        if self._state is not ConsumerState.CREATED:
            raise self._state_error()
        # Whatever goes wrong from here on: half a start is not tried again.
        self._state = ConsumerState.START_FAILED
        instance_name, unit_name = self._names
        if self.settings.is_broadcasting:
            # Its progress is in a file by this name, which the next process has to find.
            instance_name = instance_name or _BROADCASTING_INSTANCE
        return ClientInstance.acquire(self._connection, instance=instance_name, unit=unit_name)

    def _register(self, instance: ClientInstance) -> None:
        settings = self.settings
        self._instance = instance
        try:
            periods = {"heartbeat": settings.heartbeat_ms, "route": settings.route_ms}
            periods["rebalance"] = settings.rebalance_ms
            instance.register(self, periods, self._rpc_hooks)
            self._check_filters(instance)
        except BaseException:
            self._instance = None
            instance.unregister(self)
            instance.release()
            raise
        # Not before this are queues taken: a start that fails must not have consumed anything.
        self._state = ConsumerState.RUNNING
        instance.want_rebalance()

    def _check_filters(self, instance: ClientInstance) -> None:
        """Have brokers judge expressions: a pull with a wrong one would be given every message."""
        for topic, wanted in self._subscriptions.items():
            if wanted.kind != "TAG":
                instance.check_subscription(self.settings.group, topic, wanted)
