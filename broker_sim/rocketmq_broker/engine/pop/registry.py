"""Pop consumption put together: its tables, its rules by request, and what is done between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.core.outcomes import AfterSync, Answer, HoldPop, Outcome
from rocketmq_broker.engine.core.routes import Identity
from rocketmq_broker.engine.core.topics import Topics
from rocketmq_broker.engine.groups.committed_offsets import Progress
from rocketmq_broker.engine.groups.consumer_groups import Groups
from rocketmq_broker.engine.pop.ack import Acknowledging
from rocketmq_broker.engine.pop.assignment import Assignments
from rocketmq_broker.engine.pop.cursors import Places
from rocketmq_broker.engine.pop.in_flight import GroupQueue, InFlightPops
from rocketmq_broker.engine.pop.orderly import ORDERS_FILE, Orders
from rocketmq_broker.engine.pop.peek import Peeking
from rocketmq_broker.engine.pop.pop import PopLimits, Popping
from rocketmq_broker.engine.pop.revive import Revival
from rocketmq_broker.storage.store import Store
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.handles import RetryKind
from rocketmq_wire.requests.assignment import QueryAssignment, SetConsumeMode
from rocketmq_wire.requests.contract import Done, Reply
from rocketmq_wire.requests.pop import (
    AckMessage,
    AckMessages,
    AwaitMessages,
    ChangeInvisibleTime,
    GetPollingCount,
    PeekMessages,
    PollingCountReply,
    PopMessages,
    PopReply,
)


class Pops:
    """All of pop consumption. Like the engine it has one owner and no clock."""

    def __init__(
        self,
        config: BrokerConfig,
        identity: Identity,
        *,
        store: Store,
        topics: Topics,
        groups: Groups,
        progress: Progress,
        assignments: Assignments,
    ) -> None:
        limits = _pop_limits(config)
        self._topics, self._groups = topics, groups
        self._loans, self._orders = InFlightPops(), Orders(store.configs.load(ORDERS_FILE))
        self._revival = Revival(
            self._loans,
            store=store,
            topics=topics,
            groups=groups,
            progress=progress,
            cluster_name=identity.cluster_name,
            store_host=identity.store_host,
            retry_kind=limits.retry_kind,
        )
        places = Places(
            loans=self._loans,
            orders=self._orders,
            store=store,
            topics=topics,
            groups=groups,
            progress=progress,
        )
        self._popping = Popping(
            limits,
            broker_name=identity.broker_name,
            loans=self._loans,
            orders=self._orders,
            places=places,
            store=store,
            topics=topics,
        )
        self._settling = Acknowledging(
            loans=self._loans,
            orders=self._orders,
            revival=self._revival,
            places=places,
            waits_for_sync=config.flush == "sync",
        )
        self._looking = Peeking(limits, orders=self._orders, places=places, store=store)
        self._assignments = assignments
        self.waiting_count: Callable[[str, QueueId], int] = lambda *_: 0
        """How many pops of a group wait for a queue: whoever holds them knows."""
        self.note_popped: Callable[[int, int, int], None] = lambda *_: None
        """Is told of every pop how many messages and bytes it gave, and the time."""

    def rules(self) -> dict[type, Callable[..., Outcome]]:
        """What becomes of each request of pop consumption."""
        settling, looking = self._settling, self._looking
        return {
            PopMessages: lambda request, _, now_ms: self._pop(request, now_ms),
            AckMessage: lambda request, _, now_ms: settling.ack(request, now_ms),
            AckMessages: lambda request, _, now_ms: settling.ack_all(request, now_ms),
            ChangeInvisibleTime: lambda request, _, now_ms: settling.change(request, now_ms),
            PeekMessages: lambda request, _, now_ms: looking.peek(request, now_ms),
            AwaitMessages: lambda request, _, now_ms: looking.await_messages(request, now_ms),
            GetPollingCount: self._polling_count,
            QueryAssignment: lambda request, *_: Answer(self._assignments.assign(request)),
            SetConsumeMode: self._set_mode,
        }

    def resume(self, hold: HoldPop, now_ms: int, *, is_final: bool) -> Outcome:
        """Ask a held request again: something came, or its time is over (`is_final`)."""
        if isinstance(hold.request, AwaitMessages):
            return self._looking.await_messages(hold.request, now_ms, is_final=is_final)
        return self._pop(hold.request, now_ms, is_final=is_final)

    def _pop(self, request: PopMessages, now_ms: int, *, is_final: bool = False) -> Outcome:
        outcome = self._popping.pop(request, now_ms, is_final=is_final)
        reply = outcome.reply if isinstance(outcome, (Answer, AfterSync)) else None
        if isinstance(reply, PopReply):
            count = sum(len(span.offsets) for span in reply.spans)
            self.note_popped(count, sum(len(part) for part in reply.records), now_ms)
        return outcome

    def polling_full(self, hold: HoldPop, now_ms: int) -> Reply:
        """The answer to a request that would wait where too many wait already."""
        return self._popping.polling_full(hold, now_ms)

    def turn(self, now_ms: int) -> bool:
        """Write, revive and advance what is due; True if the log grew."""
        return self._revival.turn(now_ms)

    def write_all(self, now_ms: int) -> None:
        """Write what is only in memory: the broker stops."""
        self._revival.write_all(now_ms)

    def advance(self) -> None:
        """Let progress follow what is durable now."""
        self._revival.advance()

    def take_freed(self, now_ms: int) -> list[GroupQueue]:
        """Queues that may be popped in order again since the last time."""
        return self._settling.take_freed(now_ms)

    def take_orders(self) -> dict[str, Any] | None:
        """`consumerOrderInfo.json`, if it changed since it was last taken: the caller saves it."""
        return self._orders.take_changes()

    def put_back_orders(self) -> None:
        """What was taken could not be saved: it is to be taken again."""
        self._orders.put_back()

    def retry_topics_of(self, topic: str) -> list[str]:
        """The topics that hold its messages for groups to pop them again."""
        names = [
            kind.topic_of(topic, group)
            for group in self._groups.names()
            for kind in (RetryKind.V1, RetryKind.V2)
        ]
        return [name for name in names if self._topics.get(name) is not None]

    def forget_topic(self, *topics: str) -> None:
        """Topics were deleted."""
        gone = frozenset(topics)
        self._loans.forget_topics(gone)
        self._orders.forget_topics(gone)

    def _polling_count(self, request: GetPollingCount, *_: object) -> Outcome:
        self._topics.require(request.queue.topic)
        return Answer(PollingCountReply(self.waiting_count(request.group, request.queue)))

    def _set_mode(self, request: SetConsumeMode, *_: object) -> Outcome:
        self._assignments.set_mode(request)
        return Answer(Done())


def _pop_limits(config: BrokerConfig) -> PopLimits:
    return PopLimits(
        bytes_max=config.transfer_bytes_max,
        allows_sql=config.property_filter,
        retry_kind=RetryKind.V2 if config.pop_retry_topic_v2 else RetryKind.V1,
        poll_ms_max=config.suspend_ms_max if config.long_polling else 0,
    )
