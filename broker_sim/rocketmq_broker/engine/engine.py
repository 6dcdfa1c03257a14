"""The engine: decides about each request by its rule, and keeps time-driven work between requests.

The engine does not know which protocol carried a request. It is not thread-safe: one event loop
owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.admin.administration import Administration
from rocketmq_broker.engine.admin.name_server import name_server_rules
from rocketmq_broker.engine.admin.settings import Settings
from rocketmq_broker.engine.admin.statistics import Statistics
from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.activity import Activity
from rocketmq_broker.engine.core.outcomes import (
    DONE,
    AfterSync,
    Answer,
    Hold,
    Outcome,
    Peer,
    Q,
    Rule,
    answer_rule,
    done_rule,
    timed_rule,
)
from rocketmq_broker.engine.core.routes import Identity
from rocketmq_broker.engine.groups.clients import QueueLocks, Registration, check_heartbeat
from rocketmq_broker.engine.messages.delays import DELAYS_FILE, Delays
from rocketmq_broker.engine.messages.filtering import check_subscription
from rocketmq_broker.engine.messages.pulling import Pulling
from rocketmq_broker.engine.messages.retries import SendBacks
from rocketmq_broker.engine.messages.sending import Sending
from rocketmq_broker.engine.messages.timers import Timers
from rocketmq_broker.engine.pop.orderly import ORDERS_FILE
from rocketmq_broker.engine.pop.registry import Pops
from rocketmq_broker.engine.tables import Tables
from rocketmq_broker.engine.transactions.half_messages import CHECKS_FILE, Transactions
from rocketmq_broker.storage.disk.config_files import CONSUMER_OFFSETS, TIMERS
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.store import Store
from rocketmq_wire.model import RETRY_PREFIX
from rocketmq_wire.requests import groups, messages, offsets, topics, transactions
from rocketmq_wire.requests.contract import Done, Reply, Request

_SIZE_BYTES: Final = 4


@dataclass(slots=True)
class ConfigFile:
    """A configuration file that the broker saves from time to time."""

    name: str
    take_changes: Callable[[], dict[str, Any] | None]
    """Returns the new content, or None if nothing changed since the last call."""
    _unsaved: dict[str, Any] | None = None

    def unsaved(self) -> dict[str, Any] | None:
        """The content to save; None if nothing changed since the last `note_saved`."""
        changes = self.take_changes()
        self._unsaved = self._unsaved if changes is None else changes
        return self._unsaved

    def note_saved(self, content: dict[str, Any]) -> None:
        if self._unsaved is content:
            self._unsaved = None


class Engine:
    """One broker, with the name server that it may be."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        identity: Identity,
        ahead_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`ahead_ms` is how far the broker's clock is ahead of the wall clock that clients use."""
        self.tables = Tables.open(config, store, identity, ahead_ms)
        self._activity = Activity()
        self._pulling = Pulling(self.tables)
        self.timers = Timers(self.tables)
        self.transactions = Transactions(self.tables)
        self.delays = Delays(self.tables)
        self.locks = QueueLocks()
        self.pops = Pops(self.tables, self._activity)
        self._sending = Sending(self.tables, timers=self.timers, half_messages=self.transactions)
        self._statistics = Statistics(self.tables, self._activity)
        self._administration = Administration(
            self.tables, self._statistics, Settings(self.tables, self._pulling), self._activity
        )
        self._stored_end = store.appended_end
        self._rules = {
            rule.request: rule.decide
            for rule in (
                *self._message_rules(),
                *self._topic_rules(),
                *self._group_rules(),
                *self._statistics_rules(),
                *self.pops.rules(),
                *self._administration.rules(),
                *name_server_rules(self.tables.brokers),
            )
        }
        self.config_files = (
            ConfigFile(CONSUMER_OFFSETS, self._take_committed_offsets),
            ConfigFile(DELAYS_FILE, lambda: self.delays.take_changes(store.durable_end)),
            ConfigFile(ORDERS_FILE, self.pops.orderly.take_changes),
            ConfigFile(TIMERS, lambda: self.timers.take_changes(store.durable_end)),
            ConfigFile(CHECKS_FILE, self.transactions.take_changes),
        )

    def handle(self, request: Request[Reply], peer: Peer, now_ms: int) -> Outcome:
        """Decide about a request. Raises BrokerError to refuse."""
        self._activity.begin(now_ms)
        decide = self._rules.get(type(request))
        if decide is None:
            raise refusals.feature_unsupported(type(request).__name__)
        return self._count_messages(request, decide(request, peer, now_ms), now_ms)

    def handle_joined(
        self, sends: Sequence[tuple[messages.SendBatch | messages.SendRecords, Peer]], now_ms: int
    ) -> list[Outcome] | None:
        """Decide about several sends at once, all of one kind and for one topic.

        None or a BrokerError mean that nothing was stored: `handle` each of them then.
        """
        batches = [(send, peer) for send, peer in sends if isinstance(send, messages.SendBatch)]
        if batches:
            assert len(batches) == len(sends)
            outcomes = self._sending.send_batches(batches, now_ms)
        else:
            records = [send for send, _ in sends if isinstance(send, messages.SendRecords)]
            outcomes = self._sending.send_all_records(records, now_ms)
        return outcomes and [
            self._count_messages(send, outcome, now_ms)
            for (send, _), outcome in zip(sends, outcomes, strict=True)
        ]

    def resume(self, hold: Hold, now_ms: int, *, is_final: bool) -> Outcome:
        """Decide again about a held pull: its queue grew, or its time is over (`is_final`)."""
        outcome = self._pulling.resume(hold, now_ms, is_final=is_final)
        return self._count_messages(hold.request, outcome, now_ms)

    def expire_clients(self, now_ms: int) -> None:
        """Forget clients and brokers without heartbeats, and queue locks that were not renewed."""
        self.tables.clients.expire(now_ms)
        self.tables.brokers.expire(now_ms)
        self.locks.expire(now_ms)

    def deliver_delayed(self, now_ms: int) -> bool:
        """Deliver the delayed messages that are due; True if the log grew."""
        has_grown = self.delays.deliver(now_ms)
        return self.timers.deliver(now_ms) or has_grown

    def _take_committed_offsets(self) -> dict[str, Any] | None:
        self.pops.revival.advance()
        self.transactions.commit_offsets()
        return self.tables.committed.take_changes()

    # --- rules --------------------------------------------------------------------------------

    def _message_rules(self) -> tuple[Rule[Any], ...]:
        sending = self._sending
        return (
            timed_rule(messages.PullMessages, self._pulling.pull),
            Rule(messages.SendMessage, sending.send_message),
            Rule(messages.SendBatch, sending.send_batch),
            timed_rule(messages.SendRecords, sending.send_records),
            Rule(messages.SendBack, SendBacks(self.tables).send_back),
            Rule(transactions.EndTransaction, self.transactions.end),
            timed_rule(messages.RecallMessage, self.timers.recall),
        )

    def _topic_rules(self) -> tuple[Rule[Any], ...]:
        table = self.tables.topics
        return (
            answer_rule(topics.ListTopicConfigs, lambda _: topics.TopicConfigsReply(table.all())),
            answer_rule(
                topics.GetTopicConfig,
                lambda request: topics.TopicConfigsReply((table.require(request.topic),)),
            ),
            done_rule(topics.CreateTopic, lambda request: table.put(request.config)),
            done_rule(topics.DeleteTopic, self._delete_topic),
        )

    def _group_rules(self) -> tuple[Rule[Any], ...]:
        tables = self.tables
        return (
            Rule(groups.Heartbeat, self._heartbeat),
            Rule(groups.UnregisterClient, self._unregister),
            done_rule(groups.CheckSubscription, self._check_subscription),
            timed_rule(
                groups.LockQueues, lambda request, now_ms: Answer(self.locks.lock(request, now_ms))
            ),
            done_rule(groups.UnlockQueues, self.locks.unlock),
            answer_rule(offsets.GetCommittedOffset, self._get_committed_offset),
            answer_rule(offsets.CommitOffset, self._commit_offset),
            answer_rule(
                groups.ListGroupClients,
                lambda request: groups.ClientsReply(tables.clients.consumer_ids(request.group)),
            ),
            answer_rule(
                groups.ListGroups,
                lambda _: groups.GroupsReply(
                    tuple(sorted({*tables.groups.names(), *tables.committed.groups()}))
                ),
            ),
        )

    def _statistics_rules(self) -> tuple[Rule[Any], ...]:
        statistics = self._statistics
        return (
            _offset_rule(offsets.SearchOffset, statistics.search),
            _offset_rule(offsets.GetMaxOffset, lambda asked: statistics.bounds(asked.queue).end),
            _offset_rule(offsets.GetMinOffset, lambda asked: statistics.bounds(asked.queue).start),
            _offset_rule(
                offsets.GetEarliestStoreTime, lambda asked: statistics.earliest_time(asked.queue)
            ),
            answer_rule(topics.GetTopicStats, statistics.topic_stats),
            timed_rule(
                offsets.GetConsumeStats,
                lambda asked, now_ms: Answer(
                    statistics.consume_stats(asked.group, asked.topic, now_ms)
                ),
            ),
        )

    def _count_messages(self, request: Request[Reply], outcome: Outcome, now_ms: int) -> Outcome:
        """Count the messages of an outcome. Pops count their own."""
        reply = outcome.reply if isinstance(outcome, (Answer, AfterSync)) else None
        if isinstance(reply, messages.PullReply):
            size = sum(len(part) for part in reply.records)
            count = len(reply.sizes) // _SIZE_BYTES if reply.sizes is not None else 0
            self._activity.pulled_messages(count, size, now_ms)
            if count and isinstance(request, messages.PullMessages):
                topic = request.queue.topic
                self._activity.given_to(request.group, topic, count, size, now_ms)
        elif isinstance(reply, messages.SendReply):
            grown = self.tables.store.appended_end - self._stored_end
            self._stored_end += grown
            if isinstance(request, messages.SendRequest):
                self._activity.stored_in(request.queue.topic, reply.count, grown, now_ms)
            else:
                self._activity.stored.add(reply.count, grown, now_ms)
        return outcome

    def _heartbeat(self, request: groups.Heartbeat, peer: Peer, now_ms: int) -> Outcome:
        tables = self.tables
        address = f"{peer.host}:{peer.port}"
        member = Registration(
            groups.Connection(request.client_id, address, request.language, request.version),
            peer.key,
            now_ms,
            peer.sender,
        )
        check_heartbeat(request)
        names = [info.group for info in request.consumers]
        tables.groups.ensure(*names)
        # Java consumers subscribe to their retry topic beside their own topics. A send-back creates
        # it, too, so a full disk need not refuse the members.
        with suppress(StorageError):
            tables.topics.ensure_group_topics([RETRY_PREFIX + name for name in names], 1)
        for info in request.consumers:
            tables.clients.register_consumer(info, member)
        for group in request.producer_groups:
            tables.clients.register_producer(group, member)
        return DONE

    def _unregister(self, request: groups.UnregisterClient, peer: Peer, _: int) -> Outcome:
        self.tables.clients.unregister(request, peer.access_key)
        return DONE

    def _check_subscription(self, request: groups.CheckSubscription) -> None:
        # A consumer sends this before it pulls with an expression, to learn of a refusal.
        check_subscription(request.subscription, allows_sql=self._pulling.limits.allows_sql)

    def _get_committed_offset(self, request: offsets.GetCommittedOffset) -> Reply:
        offset = self.tables.committed.get(request.group, request.queue)
        if offset is None:
            bounds = self._statistics.bounds(request.queue)
            # As in RocketMQ, a new group begins at 0 in a queue that lost no message yet.
            if not (request.zero_if_absent and bounds.start == 0 and bounds.end > 0):
                raise refusals.committed_offset_missing(request.group, request.queue)
            offset = 0
        return offsets.OffsetReply(offset)

    def _commit_offset(self, request: offsets.CommitOffset) -> Reply:
        tables = self.tables
        tables.topics.require(request.queue.topic)
        if request.group not in tables.groups:
            if tables.config.commit_needs_group:
                raise refusals.group_missing(request.group)
            tables.groups.ensure(request.group)
        if tables.committed.awaits_reset(request.group, request.queue):
            return Done("Offset has been previously reset")
        tables.committed.commit(request.group, request.queue, request.offset)
        return Done()

    def _delete_topic(self, request: topics.DeleteTopic) -> None:
        tables = self.tables
        tables.topics.check_deletable(request.topic)
        # As in RocketMQ, the request succeeds for a missing topic, and deletes retry topics, too.
        for topic in (*self.pops.retry_topics_of(request.topic), request.topic):
            if tables.topics.get(topic) is not None:
                # Nothing below can fail: a deletion that the disk refuses changes nothing.
                tables.store.delete_topic(topic)
                tables.topics.forget(topic)
                self.pops.forget_topic(topic)
                tables.committed.delete_topic(topic)


def _offset_rule(request: type[Q], find: Callable[[Q], int]) -> Rule[Q]:
    return answer_rule(request, lambda asked: offsets.OffsetReply(find(asked)))
