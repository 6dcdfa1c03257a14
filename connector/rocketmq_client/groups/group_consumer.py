"""What every consumer of a group is: a member that shares queues, whatever becomes of messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import ClassVar, Final

from rocketmq_client.groups.client_instance import ClientInstance, ClientStateError, Member
from rocketmq_client.groups.consumer_settings import ConsumerSettings
from rocketmq_client.groups.listening import ConsumeCounts
from rocketmq_client.groups.queue_puller import QueuePuller
from rocketmq_client.groups.queue_share import QueueShare
from rocketmq_client.groups.running_info import running_info
from rocketmq_client.groups.wire_thread import now_ms
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.consumption_requests import RunningInfoReply
from rocketmq_wire.model import ConsumerInfo, QueueId, Subscription

_UNBALANCED_RETRY_MS: Final = 1_000


class GroupConsumer(Member):
    """Joins with `_acquire` and `_register`; in between `_puller` and `_share` are made."""

    _consume_type: ClassVar[str]
    _puller: QueuePuller
    _share: QueueShare

    def __init__(
        self,
        connection: ConnectionSettings,
        settings: ConsumerSettings,
        *,
        instance_name: str | None,
        unit_name: str | None,
    ) -> None:
        """Raises ValueError."""
        if not connection.name_servers:
            raise ValueError("a consumer group needs name servers: endpoints speak no groups")
        self.settings, self._connection = settings, connection
        self._names = instance_name, unit_name
        self._subscriptions: dict[str, Subscription] = dict(settings.subscriptions)
        self._version = time.time_ns() // 1_000_000
        self._instance: ClientInstance | None = None
        self._sharing = threading.Lock()
        """Held while queues are gained and lost, so that the end does not meet a rebalance."""
        self._persist_due_ms = self._retry_due_ms = 0

    @property
    def queues(self) -> tuple[QueueId, ...]:
        """The queues that this member has now, sorted."""
        return tuple(sorted(self._share.owned)) if self._instance is not None else ()

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
        with self._sharing:
            if self._instance is None:
                return
            is_balanced = self._share_queues()
        self._retry_due_ms = 0 if is_balanced else now_ms() + _UNBALANCED_RETRY_MS

    def restart(self, offsets: Mapping[QueueId, int]) -> None:
        """See `Member.restart`."""
        with self._sharing:
            if self._instance is not None:
                self._share.restart_all(offsets)

    def offsets(self) -> Mapping[QueueId, int]:
        """See `Member.offsets`."""
        return self._share.offsets()

    def running_info(self) -> RunningInfoReply:
        """See `Member.running_info`."""
        return running_info(
            self.settings,
            self.consumer_info(),
            self._share.owned,
            self._puller.counts,
            self._consume_counts(),
        )

    # --- inside -------------------------------------------------------------------------------

    def _consume_counts(self) -> ConsumeCounts | None:
        """What a listener did, where there is one."""
        return None

    def _share_queues(self) -> bool:
        """Gain and lose queues; False when that is to be tried again soon."""
        return self._share.rebalance(self._subscriptions)

    def _acquire(self) -> ClientInstance:
        if self._instance is not None:
            raise ClientStateError(f"the consumer of {self.settings.group} was started already")
        instance_name, unit_name = self._names
        return ClientInstance.acquire(self._connection, instance=instance_name, unit=unit_name)

    def _register(self, instance: ClientInstance) -> None:
        settings = self.settings
        self._instance = instance
        try:
            periods = {"heartbeat": settings.heartbeat_ms, "route": settings.route_ms}
            instance.register(self, {**periods, "rebalance": settings.rebalance_ms})
        except BaseException:
            self._instance = None
            instance.release()
            raise
