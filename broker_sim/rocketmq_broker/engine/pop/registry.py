"""Pop consumption as a whole: its parts, its rules, and its work between requests."""

from __future__ import annotations

from typing import Any

from rocketmq_broker.engine.core.activity import Activity
from rocketmq_broker.engine.core.outcomes import (
    Answer,
    CountHeldPops,
    Outcome,
    Peer,
    Rule,
    done_rule,
    timed_rule,
)
from rocketmq_broker.engine.pop.ack import Acknowledging
from rocketmq_broker.engine.pop.assignment import Assignments
from rocketmq_broker.engine.pop.cursors import Cursors
from rocketmq_broker.engine.pop.pop import Popping
from rocketmq_broker.engine.pop.revive import Revival
from rocketmq_broker.engine.tables import Tables
from rocketmq_wire.records.handles import RetryKind
from rocketmq_wire.requests import pop as requests
from rocketmq_wire.requests.groups import QueryAssignment, SetConsumeMode


class Pops:
    """All of pop consumption. Like the engine it has one owner and no clock."""

    def __init__(self, tables: Tables, activity: Activity) -> None:
        self._tables = tables
        self._cursors = Cursors(tables)
        self.orderly = self._cursors.orderly
        self.revival = Revival(tables, self._cursors)
        self.popping = Popping(tables, self._cursors, activity)
        self.acks = Acknowledging(tables, self._cursors, self.revival)
        self._assignments = Assignments(tables)

    def rules(self) -> tuple[Rule[Any], ...]:
        return (
            timed_rule(requests.PopMessages, self.popping.pop),
            timed_rule(requests.AckMessage, self.acks.ack),
            timed_rule(requests.AckMessages, self.acks.ack_all),
            timed_rule(requests.ChangeInvisibleTime, self.acks.change),
            timed_rule(requests.PeekMessages, self.popping.peek),
            timed_rule(requests.AwaitMessages, self.popping.await_messages),
            Rule(requests.GetPollingCount, self._polling_count),
            Rule(QueryAssignment, self._assign),
            done_rule(SetConsumeMode, self._assignments.set_mode),
        )

    def retry_topics_of(self, topic: str) -> list[str]:
        """The topic's retry topics for popping groups."""
        names = [
            kind.topic_of(topic, group)
            for group in self._tables.groups.names()
            for kind in (RetryKind.V1, RetryKind.V2)
        ]
        return [name for name in names if self._tables.topics.get(name) is not None]

    def forget_topic(self, topic: str) -> None:
        """Forget the pops of a deleted topic."""
        self._cursors.in_flight.forget_topic(topic)
        self.orderly.forget_topic(topic)

    def _assign(self, request: QueryAssignment, peer: Peer, _: int) -> Outcome:
        queues = self._tables.brokers.readable_queues(request.topic, peer)
        return Answer(self._assignments.assign(request, queues))

    def _polling_count(self, request: requests.GetPollingCount, _: Peer, __: int) -> Outcome:
        self._tables.topics.require(request.queue.topic)
        return CountHeldPops(request.group, request.queue)
