"""Pop consumption as a whole: its parts, its rules, and its work between requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.core.activity import Activity
from rocketmq_broker.engine.core.outcomes import (
    AfterSync,
    Answer,
    HoldPop,
    Outcome,
    Rule,
    answer_rule,
    timed_rule,
)
from rocketmq_broker.engine.pop.ack import Acknowledging
from rocketmq_broker.engine.pop.assignment import Assignments
from rocketmq_broker.engine.pop.cursors import Cursors
from rocketmq_broker.engine.pop.in_flight import GroupQueue, InFlightPops
from rocketmq_broker.engine.pop.orderly import ORDERS_FILE, OrderlyPops
from rocketmq_broker.engine.pop.peek import Peeking
from rocketmq_broker.engine.pop.pop import PopLimits, Popping
from rocketmq_broker.engine.pop.revive import Revival
from rocketmq_broker.engine.tables import Tables
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.handles import RetryKind
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.groups import QueryAssignment, SetConsumeMode
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

    def __init__(self, config: BrokerConfig, tables: Tables, activity: Activity) -> None:
        limits = _pop_limits(config)
        self.orderly = OrderlyPops(tables.store.configs.load(ORDERS_FILE))
        cursors = Cursors(tables, in_flight=InFlightPops(), orderly=self.orderly)
        self._in_flight = cursors.in_flight
        self._tables = tables
        self._activity = activity
        self._revival = Revival(cursors.in_flight, tables, limits.retry_kind)
        self._popping = Popping(limits, tables, cursors)
        self._acks = Acknowledging(tables, cursors, self._revival)
        self._peeking = Peeking(limits, tables.store, cursors)
        self._assignments = Assignments(tables)
        self.waiting_count: Callable[[str, QueueId], int] = lambda *_: 0
        """Counts a group's held pops of a queue; the server that holds them sets it."""

    def rules(self) -> tuple[Rule[Any], ...]:
        return (
            timed_rule(PopMessages, self._pop),
            timed_rule(AckMessage, self._acks.ack),
            timed_rule(AckMessages, self._acks.ack_all),
            timed_rule(ChangeInvisibleTime, self._acks.change),
            timed_rule(PeekMessages, self._peeking.peek),
            timed_rule(AwaitMessages, self._peeking.await_messages),
            answer_rule(GetPollingCount, self._polling_count),
            answer_rule(QueryAssignment, self._assignments.assign),
            answer_rule(SetConsumeMode, self._assignments.set_mode),
        )

    def resume(self, hold: HoldPop, now_ms: int, *, is_final: bool) -> Outcome:
        """Decide again about a held request: messages came, or its time is over (`is_final`)."""
        if isinstance(hold.request, AwaitMessages):
            return self._peeking.await_messages(hold.request, now_ms, is_final=is_final)
        return self._pop(hold.request, now_ms, is_final=is_final)

    def _pop(self, request: PopMessages, now_ms: int, *, is_final: bool = False) -> Outcome:
        outcome = self._popping.pop(request, now_ms, is_final=is_final)
        reply = outcome.reply if isinstance(outcome, (Answer, AfterSync)) else None
        if isinstance(reply, PopReply):
            count = sum(len(span.offsets) for span in reply.spans)
            self._activity.pulled_messages(count, sum(len(part) for part in reply.records), now_ms)
        return outcome

    def polling_full(self, hold: HoldPop, now_ms: int) -> Reply:
        """The reply to a request that cannot wait because too many wait already."""
        return self._popping.polling_full(hold, now_ms)

    def turn(self, now_ms: int) -> bool:
        """Write records, revive messages and advance offsets that are due; True if the log grew."""
        return self._revival.turn(now_ms)

    def write_all(self, now_ms: int) -> None:
        """Write the records that are only in memory: the broker stops."""
        self._revival.write_all(now_ms)

    def advance(self) -> None:
        """Advance committed offsets up to the durable records."""
        self._revival.advance()

    def take_freed(self, now_ms: int) -> list[GroupQueue]:
        """The queues that became free for orderly pops since the last call."""
        return self._acks.take_freed(now_ms)

    def retry_topics_of(self, topic: str) -> list[str]:
        """The topic's retry topics for popping groups."""
        names = [
            kind.topic_of(topic, group)
            for group in self._tables.groups.names()
            for kind in (RetryKind.V1, RetryKind.V2)
        ]
        return [name for name in names if self._tables.topics.get(name) is not None]

    def forget_topic(self, *topics: str) -> None:
        """Forget the pops of deleted topics."""
        gone = frozenset(topics)
        self._in_flight.forget_topics(gone)
        self.orderly.forget_topics(gone)

    def _polling_count(self, request: GetPollingCount) -> Reply:
        self._tables.topics.require(request.queue.topic)
        return PollingCountReply(self.waiting_count(request.group, request.queue))


def _pop_limits(config: BrokerConfig) -> PopLimits:
    return PopLimits(
        bytes_max=config.transfer_bytes_max,
        allows_sql=config.property_filter,
        retry_kind=RetryKind.V2 if config.pop_retry_topic_v2 else RetryKind.V1,
        poll_ms_max=config.suspend_ms_max if config.long_polling else 0,
    )
