"""The broker's rules in one place: a request and the time in, an outcome out.

The engine never knows which protocol asked. It is not thread-safe: one event loop owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.admin.administration import Administration
from rocketmq_broker.engine.admin.settings import Settings
from rocketmq_broker.engine.admin.statistics import Statistics
from rocketmq_broker.engine.core import refusals, topics
from rocketmq_broker.engine.core.activity import Activity
from rocketmq_broker.engine.core.outcomes import AfterSync, Answer, Hold, Outcome, Peer
from rocketmq_broker.engine.core.routes import Identity, cluster_of, route_of
from rocketmq_broker.engine.groups import committed_offsets as progress
from rocketmq_broker.engine.groups import consumer_groups as groups
from rocketmq_broker.engine.groups.clients import Clients, Origin
from rocketmq_broker.engine.groups.member_questions import MemberQuestions
from rocketmq_broker.engine.groups.queue_locks import QueueLocks
from rocketmq_broker.engine.messages import delays, timers
from rocketmq_broker.engine.messages.filtering import check_subscription
from rocketmq_broker.engine.messages.pulling import Pulling, PullLimits
from rocketmq_broker.engine.messages.retries import SendBacks
from rocketmq_broker.engine.messages.sending import Sending, SendLimits
from rocketmq_broker.engine.pop import assignment as pop_assignment
from rocketmq_broker.engine.pop.orderly import ORDERS_FILE
from rocketmq_broker.engine.pop.registry import Pops
from rocketmq_broker.engine.transactions import half_messages as transactions
from rocketmq_broker.storage.disk.config_files import CONSUMER_OFFSETS, GROUPS, TIMERS, TOPICS
from rocketmq_broker.storage.store import Store
from rocketmq_wire.requests.brokers import ClusterReply, GetCluster
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.groups import (
    CheckSubscription,
    ClientsReply,
    GroupsReply,
    Heartbeat,
    ListGroupClients,
    ListGroups,
    LockQueues,
    QueuesReply,
    UnlockQueues,
    UnregisterClient,
)
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullReply,
    RecallMessage,
    SendBack,
    SendBatch,
    SendMessage,
    SendRecords,
    SendReply,
)
from rocketmq_wire.requests.offsets import (
    CommitOffset,
    ConsumeStatsReply,
    GetCommittedOffset,
    GetConsumeStats,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    SearchOffset,
)
from rocketmq_wire.requests.topics import (
    CreateTopic,
    DeleteTopic,
    DeleteTopicFromNameServer,
    GetRoute,
    GetTopicConfig,
    GetTopicStats,
    ListTopicConfigs,
    ListTopics,
    RouteReply,
    TopicConfigsReply,
    TopicsReply,
    TopicStatsReply,
)
from rocketmq_wire.requests.transactions import EndTransaction

DONE = Answer(Done())
_SIZE_BYTES: Final = 4
_DAY_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of a configuration file that is due to be saved."""

    name: str
    content: dict[str, Any]


class Engine:
    """One broker, which is its own name server."""

    def __init__(self, config: BrokerConfig, store: Store, identity: Identity) -> None:
        load, save = store.configs.load, store.configs.save
        self._identity, self._store = identity, store
        self._commit_needs_group = config.commit_needs_group
        self.clients = Clients(expiry_ms=config.client_expiry_seconds * 1_000)
        self.topics = topics.Topics(
            load(TOPICS),
            save,
            auto_create=config.auto_create_topic,
            auto_create_queues=config.auto_create_topic_queues,
        )
        self.groups = groups.Groups(load(GROUPS), save, auto_create=config.auto_create_group)
        self.progress = progress.Progress(load(CONSUMER_OFFSETS))
        self._waits_for_sync = config.flush == "sync"
        self._pulling = self._open_pulling(config)
        self.timers = self._open_timers()
        self.transactions = self._open_transactions(config)
        self._sending = self._open_sending(config)
        self.locks = QueueLocks()
        self.delays = delays.Delays(
            load(delays.FILE_NAME),
            store=store,
            topics=self.topics,
            store_host=identity.store_host,
        )
        self._send_backs = SendBacks(
            store=store,
            topics=self.topics,
            groups=self.groups,
            store_host=identity.store_host,
            waits_for_sync=self._waits_for_sync,
        )
        self.pops = self._open_pops(config)
        self._statistics = Statistics(
            identity.broker_name,
            store=store,
            topics=self.topics,
            progress=self.progress,
            clients=self.clients,
        )
        self._activity = Activity()
        self.pops.note_popped = self._activity.pulled_messages
        self._administration = self._open_administration(config)
        self._counted_end = store.appended_end
        self._rules = self._rules_by_request()

    def _open_pulling(self, config: BrokerConfig) -> Pulling:
        return Pulling(
            _pull_limits(config),
            store=self._store,
            topics=self.topics,
            groups=self.groups,
            clients=self.clients,
            progress=self.progress,
        )

    def _open_timers(self) -> timers.Timers:
        return timers.Timers(
            self._store.configs.load(TIMERS),
            identity=self._identity,
            store=self._store,
            topics=self.topics,
            waits_for_sync=self._waits_for_sync,
        )

    def _open_transactions(self, config: BrokerConfig) -> transactions.Transactions:
        return transactions.Transactions(
            _transaction_limits(config),
            self._store.configs.load(transactions.FILE_NAME),
            identity=self._identity,
            store=self._store,
            topics=self.topics,
            clients=self.clients,
            progress=self.progress,
            waits_for_sync=self._waits_for_sync,
        )

    def _open_sending(self, config: BrokerConfig) -> Sending:
        timer_ms_max = config.timer_days_max * _DAY_MS
        return Sending(
            SendLimits(config.message_bytes_max, self._waits_for_sync, timer_ms_max),
            identity=self._identity,
            store=self._store,
            topics=self.topics,
            timers=self.timers,
            transactions=self.transactions,
        )

    def _open_pops(self, config: BrokerConfig) -> Pops:
        configs = self._store.configs
        assignments = pop_assignment.Assignments(
            configs.load(pop_assignment.FILE_NAME),
            configs.save,
            broker_name=self._identity.broker_name,
            topics=self.topics,
            groups=self.groups,
            clients=self.clients,
        )
        return Pops(
            config,
            self._identity,
            store=self._store,
            topics=self.topics,
            groups=self.groups,
            progress=self.progress,
            assignments=assignments,
        )

    def _open_administration(self, config: BrokerConfig) -> Administration:
        return Administration(
            self._identity,
            store=self._store,
            topics=self.topics,
            groups=self.groups,
            clients=self.clients,
            progress=self.progress,
            statistics=self._statistics,
            settings=Settings(
                config, pulling=self._pulling, topics=self.topics, groups=self.groups
            ),
            activity=self._activity,
        )

    def handle(self, request: Request[Reply], peer: Peer, now_ms: int) -> Outcome:
        """Decide about a request. Raises BrokerError to refuse."""
        self._activity.begin(now_ms)
        if type(request) is PullMessages:
            outcome = self._pulling.pull(request, now_ms)
            return self._counted_pull(outcome, now_ms)
        rule = self._rules.get(type(request))
        if rule is None:
            raise refusals.feature_unsupported(type(request).__name__)
        return rule(request, peer, now_ms)

    def handle_joined(
        self, sends: Sequence[tuple[SendBatch | SendRecords, Peer]], now_ms: int
    ) -> list[Outcome] | None:
        """Decide about several sends at once, all of one kind and for one topic.

        None or a BrokerError mean that nothing was stored: `handle` each of them then.
        """
        batches = [(send, peer) for send, peer in sends if isinstance(send, SendBatch)]
        if batches:
            assert len(batches) == len(sends)
            outcomes = self._sending.send_batches(batches, now_ms)
        else:
            records = [send for send, _ in sends if isinstance(send, SendRecords)]
            outcomes = self._sending.send_all_records(records, now_ms)
        return outcomes and [self._counted_send(outcome, now_ms) for outcome in outcomes]

    def resume(self, hold: Hold, now_ms: int, *, is_final: bool) -> Outcome:
        """Ask a held pull again: its queue grew, or its time is over (`is_final`)."""
        outcome = self._pulling.resume(hold, now_ms, is_final=is_final)
        return self._counted_pull(outcome, now_ms)

    def forget_peer(self, peer_key: int) -> None:
        """A connection closed."""
        self.clients.forget_peer(peer_key)

    def expire_clients(self, now_ms: int) -> None:
        self.clients.expire(now_ms)
        self.locks.expire(now_ms)

    def deliver_delayed(self, now_ms: int) -> bool:
        """Deliver the delayed messages that are due; True if the log grew."""
        has_grown = self.delays.deliver(now_ms)
        return self.timers.deliver(now_ms) or has_grown

    def take_checks(self, now_ms: int) -> tuple[list[transactions.ClientCheck], bool]:
        """Whom to ask about half messages that nobody ends, and whether the log grew."""
        return self.transactions.take_checks(now_ms)

    def take_timers(self) -> ConfigFile | None:
        """Up to which time messages with a time are delivered, if that changed: to be saved."""
        content = self.timers.take_changes(self._store.durable_end)
        return ConfigFile(TIMERS, content) if content is not None else None

    def take_transactions(self) -> ConfigFile | None:
        """How often producers were asked, if that changed: the caller saves it."""
        content = self.transactions.take_changes()
        return ConfigFile(transactions.FILE_NAME, content) if content is not None else None

    def take_orders(self) -> ConfigFile | None:
        """What is popped in order, if it changed since it was last taken: the caller saves it."""
        content = self.pops.take_orders()
        return ConfigFile(ORDERS_FILE, content) if content is not None else None

    def take_delays(self) -> ConfigFile | None:
        """How far delayed messages are delivered, if that changed since: the caller saves it."""
        content = self.delays.take_changes(self._store.durable_end)
        return ConfigFile(delays.FILE_NAME, content) if content is not None else None

    def take_progress(self) -> ConfigFile | None:
        """The groups' progress if it changed since it was last taken: the caller saves it."""
        self.pops.advance()
        self.transactions.settle()
        content = self.progress.take_changes()
        return ConfigFile(CONSUMER_OFFSETS, content) if content is not None else None

    def _rules_by_request(self) -> dict[type, Callable[..., Outcome]]:
        sending = self._sending
        return {
            SendMessage: lambda request, peer, now_ms: self._counted_send(
                sending.send_message(request, peer, now_ms), now_ms
            ),
            SendBatch: lambda request, peer, now_ms: self._counted_send(
                sending.send_batch(request, peer, now_ms), now_ms
            ),
            SendRecords: lambda request, _, now_ms: self._counted_send(
                sending.send_records(request, now_ms), now_ms
            ),
            GetRoute: self._route,
            GetCluster: lambda _, peer, __: Answer(ClusterReply(cluster_of(self._identity, peer))),
            ListTopics: lambda *_: Answer(
                TopicsReply(tuple(config.name for config in self.topics.all()))
            ),
            # The route of a topic is the topic itself here: nothing lingers when it is deleted.
            DeleteTopicFromNameServer: lambda *_: DONE,
            Heartbeat: self._heartbeat,
            UnregisterClient: self._unregister,
            CheckSubscription: self._check_subscription,
            SendBack: lambda request, _, now_ms: self._send_backs.send_back(request, now_ms),
            EndTransaction: lambda request, _, now_ms: self.transactions.end(request, now_ms),
            RecallMessage: lambda request, _, now_ms: self.timers.recall(request, now_ms),
            LockQueues: self._lock,
            UnlockQueues: self._unlock,
            ListGroupClients: lambda request, *_: Answer(
                ClientsReply(self.clients.consumer_ids(request.group))
            ),
            GetCommittedOffset: self._get_progress,
            CommitOffset: self._commit_progress,
            CreateTopic: self._create_topic,
            DeleteTopic: self._delete_topic,
            ListTopicConfigs: lambda *_: Answer(TopicConfigsReply(self.topics.all())),
            GetTopicConfig: lambda request, *_: Answer(
                TopicConfigsReply((self.topics.require(request.topic),))
            ),
            ListGroups: lambda *_: Answer(
                GroupsReply(tuple(sorted({*self.groups.names(), *self.progress.groups()})))
            ),
            **self._statistics_rules(),
            **self.pops.rules(),
            **self._administration.rules(),
            **MemberQuestions(
                self._identity.broker_name, clients=self.clients, store=self._store
            ).rules(),
        }

    def _statistics_rules(self) -> dict[type, Callable[..., Outcome]]:
        statistics = self._statistics
        return {
            SearchOffset: lambda request, *_: _offset(statistics.search(request)),
            GetMaxOffset: lambda request, *_: _offset(statistics.bounds(request.queue).end),
            GetMinOffset: lambda request, *_: _offset(statistics.bounds(request.queue).start),
            GetEarliestStoreTime: lambda request, *_: _offset(
                statistics.earliest_time(request.queue)
            ),
            GetTopicStats: lambda request, *_: Answer(
                TopicStatsReply(statistics.topic_stats(request.topic))
            ),
            GetConsumeStats: lambda request, *_: Answer(
                ConsumeStatsReply(statistics.consume_stats(request.group, request.topic))
            ),
        }

    def _counted_pull(self, outcome: Outcome, now_ms: int) -> Outcome:
        reply = outcome.reply if isinstance(outcome, Answer) else None
        if isinstance(reply, PullReply):
            size = sum(len(part) for part in reply.records)
            count = len(reply.sizes) // _SIZE_BYTES if reply.sizes is not None else 0
            self._activity.pulled_messages(count, size, now_ms)
        return outcome

    def _counted_send(self, outcome: Outcome, now_ms: int) -> Outcome:
        reply = outcome.reply if isinstance(outcome, (Answer, AfterSync)) else None
        if isinstance(reply, SendReply):
            grown = self._store.appended_end - self._counted_end
            self._counted_end += grown
            self._activity.stored.add(reply.count, grown, now_ms)
        return outcome

    def _route(self, request: GetRoute, peer: Peer, _: int) -> Outcome:
        permission = self._administration.write_permission
        route = route_of(self.topics, self._identity, request.topic, peer, permission)
        return Answer(RouteReply(route))

    def _heartbeat(self, request: Heartbeat, peer: Peer, now_ms: int) -> Outcome:
        origin = Origin(f"{peer.host}:{peer.port}", request.language, request.version)
        for info in request.consumers:
            self.groups.ensure(info.group)
            self.topics.create_retry_topic(info.group)
            self.clients.register_consumer(
                request.client_id, info, peer_key=peer.key, now_ms=now_ms, origin=origin
            )
        for group in request.producer_groups:
            self.clients.register_producer(
                request.client_id, group, peer_key=peer.key, now_ms=now_ms, origin=origin
            )
        return DONE

    def _unregister(self, request: UnregisterClient, _: Peer, __: int) -> Outcome:
        self.clients.unregister(
            request.client_id,
            producer_group=request.producer_group,
            consumer_group=request.consumer_group,
        )
        return DONE

    def _lock(self, request: LockQueues, _: Peer, now_ms: int) -> Outcome:
        owned = self.locks.lock(request.group, request.client_id, request.queues, now_ms)
        return Answer(QueuesReply(owned))

    def _unlock(self, request: UnlockQueues, _: Peer, __: int) -> Outcome:
        self.locks.unlock(request.group, request.client_id, request.queues)
        return DONE

    def _check_subscription(self, request: CheckSubscription, _: Peer, __: int) -> Outcome:
        # A consumer asks this before it pulls with an expression: its refusal is the answer.
        check_subscription(request.subscription, allows_sql=self._pulling.limits.allows_sql)
        return DONE

    def _get_progress(self, request: GetCommittedOffset, _: Peer, __: int) -> Outcome:
        offset = self.progress.get(request.group, request.queue)
        if offset is None:
            bounds = self._statistics.bounds(request.queue)
            # A young queue of which nothing is gone: RocketMQ lets a new group begin at 0.
            if not (request.zero_if_absent and bounds.start == 0 and bounds.end > 0):
                raise refusals.progress_missing(request.group, request.queue)
            offset = 0
        return _offset(offset)

    def _commit_progress(self, request: CommitOffset, _: Peer, __: int) -> Outcome:
        self.topics.require(request.queue.topic)
        if request.group not in self.groups:
            if self._commit_needs_group:
                raise refusals.group_missing(request.group)
            self.groups.ensure(request.group)
        if self.progress.awaits_reset(request.group, request.queue):
            return Answer(Done("Offset has been previously reset"))
        self.progress.commit(request.group, request.queue, request.offset)
        return DONE

    def _create_topic(self, request: CreateTopic, _: Peer, __: int) -> Outcome:
        self.topics.put(request.config)
        return DONE

    def _delete_topic(self, request: DeleteTopic, _: Peer, __: int) -> Outcome:
        self.topics.check_deletable(request.topic)
        # Deleting what is not there succeeds, as in RocketMQ; what is to be popped again goes, too.
        for topic in (*self.pops.retry_topics_of(request.topic), request.topic):
            if self.topics.get(topic) is not None:
                # The messages first: after a crash in between an empty topic is left, never a name
                # under which a new topic would find old messages.
                self._store.delete_topic(topic)
                self.topics.delete(topic)
                self.pops.forget_topic(topic)
                self.progress.delete_topic(topic)
        return DONE


def _pull_limits(config: BrokerConfig) -> PullLimits:
    return PullLimits(
        count_max=config.transfer_count_max,
        bytes_max=config.transfer_bytes_max,
        suspend_ms_max=config.suspend_ms_max if config.long_polling else 0,
        stops_at_file_end=config.pull_stops_at_queue_file_end,
        allows_sql=config.property_filter,
    )


def _transaction_limits(config: BrokerConfig) -> transactions.TransactionLimits:
    return transactions.TransactionLimits(
        first_check_ms=config.transaction_timeout_ms,
        check_interval_ms=config.transaction_check_interval_ms,
        checks_max=config.transaction_check_max,
    )


def _offset(value: int) -> Answer:
    return Answer(OffsetReply(value))
