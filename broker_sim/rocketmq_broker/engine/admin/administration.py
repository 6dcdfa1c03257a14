"""The rules of administrators' requests: settings, groups, clients, offset resets, messages.

The broker passes some of them on to members of a group: only they know the answers. The rules for
topics are in `engine`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from rocketmq_broker.engine.admin.settings import Settings
from rocketmq_broker.engine.admin.statistics import Statistics
from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.activity import Activity
from rocketmq_broker.engine.core.outcomes import (
    DONE,
    Answer,
    AskMembers,
    Member,
    Outcome,
    Peer,
    Rule,
    answer_rule,
    done_rule,
    timed_rule,
)
from rocketmq_broker.engine.messages.store_again import require_right
from rocketmq_broker.engine.tables import Tables
from rocketmq_wire.codes import BROKER_VERSION
from rocketmq_wire.errors import BrokerError, CorruptRecordError, RemoteProtocolError
from rocketmq_wire.model import Buffer, QueueId
from rocketmq_wire.records.message_id import parse_offset_message_id
from rocketmq_wire.records.properties import KEYS, UNIQUE_KEY
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests import brokers, groups, members, messages, offsets
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.permissions import CONSUME

_VERSION_NAME: Final = "V5_3_3"
"""The name of `BROKER_VERSION`."""
# RocketMQ reports its thread pools' queues and its timers' backlog; this broker's loop has none.
_THREAD_POOLS: Final = ("send", "pull", "litePull", "query", "ack")
_IDLE: Final = {
    **{f"{name}ThreadPoolQueueSize": "0" for name in _THREAD_POOLS},
    **{f"{name}ThreadPoolQueueHeadWaitTimeMills": "0" for name in _THREAD_POOLS},
    **dict.fromkeys(("pageCacheLockTimeMills", "startAcceptSendRequestTimeStamp"), "0"),
    **dict.fromkeys(("timerReadBehind", "timerOffsetBehind", "timerCongestNum"), "0"),
    **dict.fromkeys(("timerEnqueueTps", "timerDequeueTps"), "0.0"),
}
_QUERY_COUNT_MAX: Final = 64
_UNIQUE_COUNT_MAX: Final = 32


class Administration:
    def __init__(
        self, tables: Tables, statistics: Statistics, settings: Settings, activity: Activity
    ) -> None:
        self._tables = tables
        self._statistics = statistics
        self._settings = settings
        self._activity = activity

    def rules(self) -> tuple[Rule[Any], ...]:
        settings, tables = self._settings, self._tables
        return (
            answer_rule(
                brokers.GetBrokerSettings, lambda _: brokers.SettingsReply(settings.broker_table())
            ),
            answer_rule(brokers.GetNameServerSettings, settings.of_name_server),
            done_rule(brokers.ChangeBrokerSettings, settings.change),
            timed_rule(brokers.GetRuntimeInfo, self._runtime_info),
            timed_rule(brokers.GetStatistic, self._statistic),
            timed_rule(brokers.CleanConsumeQueues, self._clean),
            # The broker keeps no such entries: its topics have no order of their own.
            done_rule(brokers.DeleteNameServerEntry, lambda _: None),
            done_rule(groups.PutGroup, lambda request: tables.groups.put(request.settings)),
            done_rule(groups.DeleteGroup, self._delete_group),
            answer_rule(groups.ListTopicGroups, self._topic_groups),
            answer_rule(groups.GetConsumers, self._consumers),
            answer_rule(groups.GetProducers, self._producers),
            answer_rule(offsets.ResetClientOffsets, self._reset_offsets),
            Rule(offsets.GetAllCommittedOffsets, self._all_committed_offsets),
            Rule(messages.ViewMessage, self._view),
            timed_rule(messages.QueryMessages, self._query),
            Rule(members.GetRunningInfo, self._running_info),
            Rule(members.ConsumeDirectly, self._consume_directly),
            Rule(members.GetMembersOffsets, self._members_offsets),
        )

    # --- the broker -----------------------------------------------------------------------------

    def _runtime_info(self, _: brokers.GetRuntimeInfo, now_ms: int) -> Outcome:
        store = self._tables.store
        table = {
            **self._activity.table(now_ms),
            **_IDLE,
            "brokerActive": "true",
            "brokerVersion": str(BROKER_VERSION),
            "brokerVersionDesc": _VERSION_NAME,
            "commitLogDiskRatio": f"{store.disk_used_ratio:.2f}",
            "commitLogMinOffset": str(store.log_start),
            "commitLogMaxOffset": str(store.appended_end),
            "dispatchBehindBytes": str(store.index_lag),
            "earliestMessageTimeStamp": str(store.earliest_ms()),
            "remainHowManyDataToFlush": f"{store.appended_end - store.durable_end} B",
        }
        return Answer(brokers.SettingsReply(table))

    def _statistic(self, request: brokers.GetStatistic, now_ms: int) -> Outcome:
        found = self._activity.statistic(request.name, request.key, now_ms)
        if found is None:
            raise refusals.statistic_missing(request.name, request.key)
        return Answer(brokers.StatisticReply(*found))

    def _clean(self, _: brokers.CleanConsumeQueues, now_ms: int) -> Outcome:
        self._tables.store.clean(now_ms)
        return DONE

    # --- groups ---------------------------------------------------------------------------------

    def _delete_group(self, request: groups.DeleteGroup) -> None:
        self._tables.groups.delete(request.group)
        if request.forgets_offsets:
            self._tables.committed.delete_group(request.group)

    def _topic_groups(self, request: groups.ListTopicGroups) -> Reply:
        clients = self._tables.clients
        online = {
            group
            for group in clients.consumer_groups()
            if clients.subscription(group, request.topic) is not None
        }
        stored = self._tables.committed.groups_of(request.topic)
        return groups.GroupsReply(tuple(sorted(online | stored)))

    def _consumers(self, request: groups.GetConsumers) -> Reply:
        group = self._tables.clients.consumers(request.group)
        info = group.info
        if info is None:
            raise refusals.group_offline(request.group)
        return groups.ConsumersReply(
            group.connections(),
            info.consume_type,
            info.message_model,
            info.consume_from,
            dict(group.subscriptions),
        )

    def _producers(self, request: groups.GetProducers) -> Reply:
        connections = self._tables.clients.producers(request.group).connections()
        if not connections:
            raise refusals.producers_missing(request.group)
        return groups.ProducersReply(connections)

    def _reset_offsets(self, request: offsets.ResetClientOffsets) -> Reply:
        tables = self._tables
        config = tables.topics.get(request.topic)
        if config is None:
            raise refusals.reset_topic_missing(request.topic)
        if request.group not in tables.groups:
            raise refusals.reset_group_missing(request.group)
        indices = range(config.read_queue_count)
        if request.queue_index >= 0:
            indices = range(request.queue_index, request.queue_index + 1)
        broker_name = tables.identity.broker_name
        queues = [QueueId(request.topic, broker_name, index) for index in indices]
        targets = {queue: self._reset_offset(queue, request) for queue in queues}
        for queue, offset in targets.items():
            tables.committed.reset(request.group, queue, offset)
        return offsets.OffsetsReply(targets)

    def _reset_offset(self, queue: QueueId, request: offsets.ResetClientOffsets) -> int:
        bounds = self._statistics.bounds(queue)
        if request.queue_index >= 0 and request.offset is not None:
            if not bounds.start <= request.offset <= bounds.end + 1:
                raise refusals.reset_outside(request.offset, bounds.start, bounds.end)
            return request.offset
        if request.timestamp_ms < 0:
            return bounds.end
        return self._statistics.search(
            offsets.SearchOffset(queue, request.timestamp_ms, offsets.Boundary.LOWER)
        )

    def _all_committed_offsets(
        self, request: offsets.GetAllCommittedOffsets, peer: Peer, now_ms: int
    ) -> Outcome:
        tables = self._tables
        by_group = {}
        for group in tables.groups.names():
            stats = []
            for topic in tables.committed.topics(group):
                config = tables.topics.get(topic)
                if config is None or (request.only_ordered and not config.is_ordered):
                    continue
                found = self._statistics.consume_stats(group, topic, now_ms)
                if found.queues:
                    stats.append(found)
            by_group[group] = tuple(stats)
        return Answer(offsets.AllCommittedOffsetsReply(by_group, tables.identity.address(peer)))

    # --- messages -------------------------------------------------------------------------------

    def _view(self, request: messages.ViewMessage, peer: Peer, _: int) -> Outcome:
        return Answer(messages.RecordsReply((self._record_at(request.physical_offset, peer),)))

    def _record_at(self, position: int, peer: Peer) -> Buffer:
        """The record at a position, of a topic that the peer may read. Refusals: 1, 16."""
        record = self._tables.store.record_at(position)
        if record is None:
            raise refusals.record_missing(position)
        message, _ = decode_record(record, check_crc=False)
        require_right(message, position, self._tables.store, peer, CONSUME)
        return record

    def _query(self, request: messages.QueryMessages, now_ms: int) -> Outcome:
        store = self._tables.store
        wanted = _UNIQUE_COUNT_MAX if request.is_unique_key else request.count_max
        found = store.query_index(
            request.topic,
            request.key,
            min(max(wanted, 1), _QUERY_COUNT_MAX),
            request.begin_ms,
            request.end_ms,
        )
        records = (store.record_at(position) for position in sorted(found))
        parts = tuple(one for one in records if one is not None and _has_key(one, request))
        if not parts:
            raise refusals.message_not_found()
        return Answer(messages.RecordsReply(parts, now_ms, store.appended_end - store.index_lag))

    # --- requests that only members of a group can answer --------------------------------------

    def _running_info(self, request: members.GetRunningInfo, _: Peer, __: int) -> Outcome:
        member = self._member(request.group, request.client_id)
        return AskMembers((member,), request, _only_reply, passes_on=True)

    def _consume_directly(self, request: members.ConsumeDirectly, peer: Peer, _: int) -> Outcome:
        try:
            _host, position = parse_offset_message_id(request.message_id)
        except RemoteProtocolError as error:
            raise refusals.message_id_illegal(str(error)) from error
        record = self._record_at(position, peer)
        member = self._member(request.group, request.client_id)
        broker_name = self._tables.identity.broker_name
        asked = replace(request, broker=broker_name, record=bytes(record))
        return AskMembers((member,), asked, _only_reply, passes_on=True)

    def _members_offsets(self, request: members.GetMembersOffsets, _: Peer, __: int) -> Outcome:
        peers = self._tables.clients.consumer_peers(request.group)
        if not peers:
            raise refusals.group_offline(request.group)
        wanted = tuple(
            Member(request.group, client_id, key)
            for client_id, key in peers.items()
            if request.client_id in ("", client_id)
        )
        asked = members.GetClientOffsets(request.group, request.topic)
        return AskMembers(wanted, asked, _joined_offsets)

    def _member(self, group: str, client_id: str) -> Member:
        key = self._tables.clients.consumer_peers(group).get(client_id)
        if key is None:
            raise refusals.member_offline(group, client_id)
        return Member(group, client_id, key)


def _has_key(record: Buffer, request: messages.QueryMessages) -> bool:
    """True unless the record is in the index only because two hashes are equal."""
    try:
        message, _ = decode_record(record, check_crc=False)
    except CorruptRecordError:
        return False
    properties = message.properties
    keys = (properties.get(UNIQUE_KEY), *properties.get(KEYS, "").split(" "))
    return message.topic == request.topic and request.key in keys


def _only_reply(replies: Mapping[str, Reply | BrokerError]) -> Reply:
    (reply,) = replies.values()
    if isinstance(reply, BrokerError):
        raise reply
    return reply


def _joined_offsets(replies: Mapping[str, Reply | BrokerError]) -> Reply:
    # As RocketMQ does, the reply leaves out members that did not answer.
    return members.MembersOffsetsReply(
        {
            client_id: reply.offsets
            for client_id, reply in replies.items()
            if isinstance(reply, offsets.OffsetsReply)
        }
    )
