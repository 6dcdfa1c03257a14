"""Pop consumption as a whole: its parts, its rules, and its work between requests."""

from __future__ import annotations

from typing import Any

from rocketmq_broker.engine.core.activity import Activity
from rocketmq_broker.engine.core.outcomes import (
    CountHeldPops,
    HoldPop,
    Outcome,
    Peer,
    Rule,
    answer_rule,
    done_rule,
    timed_rule,
)
from rocketmq_broker.engine.pop.ack import Acknowledging
from rocketmq_broker.engine.pop.assignment import Assignments
from rocketmq_broker.engine.pop.cursors import Cursors
from rocketmq_broker.engine.pop.in_flight import GroupQueue, InFlightPops
from rocketmq_broker.engine.pop.orderly import ORDERS_FILE, OrderlyPops
from rocketmq_broker.engine.pop.pop import Popping
from rocketmq_broker.engine.pop.revive import Revival
from rocketmq_broker.engine.tables import Tables
from rocketmq_wire.records.handles import RetryKind
from rocketmq_wire.requests import pop as requests
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.groups import QueryAssignment, SetConsumeMode


class Pops:
    """All of pop consumption. Like the engine it has one owner and no clock."""

    def __init__(self, tables: Tables, activity: Activity) -> None:
        self.orderly = OrderlyPops(tables.store.configs.load(ORDERS_FILE))
        cursors = Cursors(tables, in_flight=InFlightPops(), orderly=self.orderly)
        self._in_flight = cursors.in_flight
        self._tables = tables
        self._revival = Revival(tables, cursors)
        self._popping = Popping(tables, cursors, activity)
        self._acks = Acknowledging(tables, cursors, self._revival)
        self._assignments = Assignments(tables)

    def rules(self) -> tuple[Rule[Any], ...]:
        return (
            timed_rule(requests.PopMessages, self._popping.pop),
            timed_rule(requests.AckMessage, self._acks.ack),
            timed_rule(requests.AckMessages, self._acks.ack_all),
            timed_rule(requests.ChangeInvisibleTime, self._acks.change),
            timed_rule(requests.PeekMessages, self._popping.peek),
            timed_rule(requests.AwaitMessages, self._popping.await_messages),
            Rule(requests.GetPollingCount, self._polling_count),
            answer_rule(QueryAssignment, self._assignments.assign),
            done_rule(SetConsumeMode, self._assignments.set_mode),
        )

    def resume(self, hold: HoldPop, now_ms: int, *, is_final: bool) -> Outcome:
        return self._popping.resume(hold, now_ms, is_final=is_final)

    def polling_full(self, hold: HoldPop, now_ms: int) -> Reply:
        return self._popping.polling_full(hold, now_ms)

    def turn(self, now_ms: int) -> bool:
        """Write records, revive messages and advance offsets that are due; True if the log grew."""
        return self._revival.turn(now_ms)

    def write_all(self, now_ms: int) -> None:
        self._revival.write_all(now_ms)

    def advance(self) -> None:
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

    def _polling_count(self, request: requests.GetPollingCount, _: Peer, __: int) -> Outcome:
        self._tables.topics.require(request.queue.topic)
        return CountHeldPops(request.group, request.queue)
