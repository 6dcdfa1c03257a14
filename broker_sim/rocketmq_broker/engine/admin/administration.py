"""What administrators' tools ask besides topics: settings, groups, clients, resets, messages.

The engine's own rules are in `engine`; these are beside it, over the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rocketmq_broker.engine.admin.settings import Settings
from rocketmq_broker.engine.admin.statistics import Statistics
from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.activity import Activity
from rocketmq_broker.engine.core.outcomes import Answer, Outcome, Peer
from rocketmq_broker.engine.core.routes import Identity, WritePermission
from rocketmq_broker.engine.core.topics import Topics
from rocketmq_broker.engine.groups.clients import Clients
from rocketmq_broker.engine.groups.committed_offsets import Progress
from rocketmq_broker.engine.groups.consumer_groups import Groups
from rocketmq_broker.storage.store import Store
from rocketmq_wire.codes import BROKER_VERSION
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.brokers import (
    AddWritePermission,
    ChangeBrokerSettings,
    CleanConsumeQueues,
    CountReply,
    DeleteNameServerEntry,
    GetBrokerSettings,
    GetNameServerSettings,
    GetRuntimeInfo,
    SettingsReply,
    WipeWritePermission,
)
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.groups import (
    ConsumersReply,
    DeleteGroup,
    GetConsumers,
    GetProducers,
    GroupsReply,
    ListTopicGroups,
    ProducersReply,
    PutGroup,
)
from rocketmq_wire.requests.messages import QueryMessages, RecordsReply, ViewMessage
from rocketmq_wire.requests.offsets import (
    AllCommittedOffsetsReply,
    Boundary,
    ConsumeStatsReply,
    GetAllCommittedOffsets,
    OffsetsReply,
    ResetClientOffsets,
    SearchOffset,
)

_VERSION_NAME: Final = "V5_3_3"
"""What `BROKER_VERSION` is called."""
_QUERY_COUNT_MAX: Final = 64
_UNIQUE_COUNT_MAX: Final = 32
_DONE: Final = Answer(Done())


class Administration:
    """The rules of the tools' requests."""

    def __init__(
        self,
        identity: Identity,
        *,
        store: Store,
        topics: Topics,
        groups: Groups,
        clients: Clients,
        progress: Progress,
        statistics: Statistics,
        settings: Settings,
        activity: Activity,
    ) -> None:
        self._identity = identity
        self._store = store
        self._topics, self._groups, self._clients = topics, groups, clients
        self._progress, self._statistics = progress, statistics
        self._settings, self._activity = settings, activity
        self.write_permission = WritePermission()

    def rules(self) -> Mapping[type, Callable[..., Outcome]]:
        """By request; each is called with the request, who asks, and the time."""
        return {
            GetBrokerSettings: lambda *_: self._show(self._settings.broker_table),
            GetNameServerSettings: lambda *_: self._show(self._settings.name_server_table),
            ChangeBrokerSettings: self._change_settings,
            GetRuntimeInfo: self._runtime_info,
            CleanConsumeQueues: self._clean,
            WipeWritePermission: self._wipe_permission,
            AddWritePermission: self._add_permission,
            # There are no entries, for topics here have no order of their own.
            DeleteNameServerEntry: lambda *_: _DONE,
            PutGroup: self._put_group,
            DeleteGroup: self._delete_group,
            ListTopicGroups: self._topic_groups,
            GetConsumers: self._consumers,
            GetProducers: self._producers,
            ResetClientOffsets: self._reset_progress,
            GetAllCommittedOffsets: self._broker_progress,
            ViewMessage: self._view,
            QueryMessages: self._query,
        }

    # --- the broker -----------------------------------------------------------------------------

    def _show(self, table: Callable[[Identity], Mapping[str, str]]) -> Outcome:
        return Answer(SettingsReply(table(self._identity)))

    def _change_settings(self, request: ChangeBrokerSettings, _: Peer, __: int) -> Outcome:
        self._settings.change(request.settings, self._identity)
        return _DONE

    def _runtime_info(self, _: GetRuntimeInfo, __: Peer, now_ms: int) -> Outcome:
        store = self._store
        log_start = store.log_start
        # Queues of tasks are what RocketMQ's thread pools have; one loop has none that wait.
        queues = ("send", "pull", "litePull", "query", "ack")
        idle = {f"{name}ThreadPoolQueueSize": "0" for name in queues}
        idle |= {f"{name}ThreadPoolQueueHeadWaitTimeMills": "0" for name in queues}
        table = {
            **self._activity.table(now_ms),
            **idle,
            "brokerActive": "true",
            "brokerVersion": str(BROKER_VERSION),
            "brokerVersionDesc": _VERSION_NAME,
            "commitLogDiskRatio": f"{store.disk_used_ratio:.2f}",
            "commitLogMinOffset": str(log_start),
            "commitLogMaxOffset": str(store.appended_end),
            "dispatchBehindBytes": str(store.index_lag),
            "earliestMessageTimeStamp": str(store.earliest_ms()),
            "pageCacheLockTimeMills": "0",
            "remainHowManyDataToFlush": f"{store.appended_end - store.durable_end} B",
            "startAcceptSendRequestTimeStamp": "0",
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }
        return Answer(SettingsReply(table))

    def _clean(self, _: CleanConsumeQueues, __: Peer, now_ms: int) -> Outcome:
        self._store.clean(now_ms)
        return _DONE

    def _wipe_permission(self, request: WipeWritePermission, _: Peer, __: int) -> Outcome:
        return self._set_permission(request.broker, may_write=False)

    def _add_permission(self, request: AddWritePermission, _: Peer, __: int) -> Outcome:
        return self._set_permission(request.broker, may_write=True)

    def _set_permission(self, broker: str, *, may_write: bool) -> Outcome:
        if broker != self._identity.broker_name:
            return Answer(CountReply(0))
        self.write_permission.put(may_write=may_write, version=self._topics.version)
        return Answer(CountReply(len(self._topics.all())))

    # --- groups ---------------------------------------------------------------------------------

    def _put_group(self, request: PutGroup, _: Peer, __: int) -> Outcome:
        self._groups.put(request.settings)
        return _DONE

    def _delete_group(self, request: DeleteGroup, _: Peer, __: int) -> Outcome:
        self._groups.delete(request.group)
        if request.forgets_offsets:
            self._progress.delete_group(request.group)
        return _DONE

    def _topic_groups(self, request: ListTopicGroups, _: Peer, __: int) -> Outcome:
        online = {
            group
            for group in self._clients.consumer_groups()
            if self._clients.subscription(group, request.topic) is not None
        }
        stored = self._progress.groups_of(request.topic)
        return Answer(GroupsReply(tuple(sorted(online | stored))))

    def _consumers(self, request: GetConsumers, _: Peer, __: int) -> Outcome:
        info = self._clients.consumer_info(request.group)
        if info is None:
            raise refusals.group_offline(request.group)
        return Answer(
            ConsumersReply(
                self._clients.consumer_connections(request.group),
                info.consume_type,
                info.message_model,
                info.consume_from,
                {
                    topic: (entry.subscription, entry.version)
                    for topic, entry in self._clients.subscriptions(request.group).items()
                },
            )
        )

    def _producers(self, request: GetProducers, _: Peer, __: int) -> Outcome:
        connections = self._clients.producer_connections(request.group)
        if not connections:
            raise refusals.producers_missing(request.group)
        return Answer(ProducersReply(connections))

    def _reset_progress(self, request: ResetClientOffsets, _: Peer, __: int) -> Outcome:
        config = self._topics.get(request.topic)
        if config is None:
            raise refusals.reset_topic_missing(request.topic)
        if request.group not in self._groups:
            raise refusals.reset_group_missing(request.group)
        indices = range(config.read_queue_count)
        if request.queue_index >= 0:
            indices = range(request.queue_index, request.queue_index + 1)
        offsets = {}
        for index in indices:
            queue = QueueId(request.topic, self._identity.broker_name, index)
            offsets[queue] = self._reset_offset(queue, request)
        for queue, offset in offsets.items():
            self._progress.reset(request.group, queue, offset)
        return Answer(OffsetsReply(offsets))

    def _reset_offset(self, queue: QueueId, request: ResetClientOffsets) -> int:
        bounds = self._statistics.bounds(queue)
        if request.queue_index >= 0 and request.offset is not None:
            if not bounds.start <= request.offset <= bounds.end + 1:
                raise refusals.reset_outside(request.offset, bounds)
            return request.offset
        if request.timestamp_ms < 0:
            return bounds.end
        return self._statistics.search(SearchOffset(queue, request.timestamp_ms, Boundary.LOWER))

    def _broker_progress(self, request: GetAllCommittedOffsets, peer: Peer, _: int) -> Outcome:
        groups = {}
        for group in self._groups.names():
            stats = []
            for topic in self._progress.topics(group):
                config = self._topics.get(topic)
                if config is None or (request.only_ordered and not config.is_ordered):
                    continue
                queues = self._statistics.consume_stats(group, topic)
                if queues:
                    stats.append(ConsumeStatsReply(queues))
            groups[group] = tuple(stats)
        return Answer(AllCommittedOffsetsReply(groups, self._identity.address(peer)))

    # --- messages -------------------------------------------------------------------------------

    def _view(self, request: ViewMessage, _: Peer, __: int) -> Outcome:
        record = self._store.record_at(request.physical_offset)
        if record is None:
            raise refusals.record_missing(request.physical_offset)
        return Answer(RecordsReply((record,)))

    def _query(self, request: QueryMessages, _: Peer, now_ms: int) -> Outcome:
        wanted = _UNIQUE_COUNT_MAX if request.is_unique_key else request.count_max
        found = self._store.query_index(
            request.topic,
            request.key,
            min(max(wanted, 1), _QUERY_COUNT_MAX),
            request.begin_ms,
            request.end_ms,
        )
        records = [self._store.record_at(position) for position in sorted(found)]
        parts = tuple(record for record in records if record is not None)
        if not parts:
            raise refusals.message_not_found()
        index_end = self._store.appended_end - self._store.index_lag
        return Answer(RecordsReply(parts, now_ms, index_end))
