"""The cluster as Spark, the command line and the jobs use it: topics, bounds, groups, downloads.

A call to several brokers returns an error in the place of an answer, so one unreachable broker does
not stop the others. Repeatable requests that failed on the way are sent again, within one request
time-out for all tries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar, cast

from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.offsets.bounds import ask_bounds, first_store_time, one_pull, search_times
from rocketmq_client.offsets.offset_commit import commit_in_rounds
from rocketmq_client.retry import SYSTEM_CLOCK, Clock, Retry
from rocketmq_client.retry_schedules import REQUEST_TRIES_MAX
from rocketmq_client.settings import READER_GROUP, ConnectionSettings
from rocketmq_client.transport.contract import Transport, open_transport
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import (
    BrokerError,
    ConnectError,
    CorruptRecordError,
    GroupNotFoundError,
    ProgressNotFoundError,
    RocketMQError,
    TopicNotFoundError,
    UnsupportedRequestError,
    raise_first,
)
from rocketmq_wire.model import (
    MASTER_ID,
    Bounds,
    ClusterInfo,
    CommittedOffset,
    OffsetRange,
    QueueId,
    QueueStats,
    Route,
    Subscription,
    TopicConfig,
    is_internal_topic,
)
from rocketmq_wire.requests.brokers import GetCluster
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import (
    ClientsReply,
    ConsumeMode,
    ListGroupClients,
    ListGroups,
    SetConsumeMode,
)
from rocketmq_wire.requests.messages import PullMessages, PullReply
from rocketmq_wire.requests.offsets import (
    Boundary,
    CommitOffset,
    ConsumeStatsReply,
    GetCommittedOffset,
    GetConsumeStats,
    GetEarliestStoreTime,
    OffsetReply,
)
from rocketmq_wire.requests.topics import (
    CreateTopic,
    DeleteTopic,
    DeleteTopicFromNameServer,
    GetRoute,
    GetTopicStats,
    ListTopicConfigs,
    ListTopics,
    TopicConfigsReply,
)
from rocketmq_wire.suggest import did_you_mean

R = TypeVar("R", bound=Reply)


def open_cluster(settings: ConnectionSettings) -> Cluster:
    """Open a cluster. Nothing is connected before the first call.

    Args:
        settings: The addresses of the cluster, credentials and time-outs.
    """
    return Cluster(settings, open_transport(settings))


class Cluster:
    """A cluster, used by one owner at a time in `with`; every call blocks for a bounded time.

    Args:
        settings: The addresses of the cluster, credentials and time-outs.
        transport: The connections; `open_cluster` chooses TCP or gRPC.
        clock: The clock of all waits.
    """

    def __init__(
        self, settings: ConnectionSettings, transport: Transport, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.settings = settings
        self.transport = transport
        self.clock = clock
        """The clock of all waits for this cluster, also of those in other modules."""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; a later call opens them again."""
        self.transport.close()

    def broker_addresses(self) -> dict[str, str]:
        """Return the addresses of the brokers known so far, by broker name."""
        return self.transport.broker_addresses()

    def hint(self, addresses: Mapping[str, str]) -> None:
        """Take over broker addresses for use while no name server answers."""
        self.transport.hint(addresses)

    # --- topics -------------------------------------------------------------------------------

    def topics(self) -> tuple[str, ...]:
        """Return every topic that the name server knows, sorted; system topics too."""
        return tuple(sorted(self._ask_one(None, ListTopics()).topics))

    def route(self, topic: str) -> Route:
        """Ask for the route of a topic. Raises TopicNotFoundError."""
        return self._ask_one(None, GetRoute(topic)).route

    def queues(self, topic: str) -> tuple[QueueId, ...]:
        """Return every readable queue of a topic, sorted. Raises TopicNotFoundError."""
        return self.route(topic).readable_queues(topic)

    def topic_stats(self, topic: str) -> dict[QueueId, QueueStats]:
        """Return bounds and newest store time of every queue, by one call a broker.

        Leaves out the queues of a broker that does not answer; raises if no broker answers.
        """
        stats: dict[QueueId, QueueStats] = {}
        for reply in self._ask_brokers(self._brokers_of(topic), GetTopicStats(topic)):
            stats.update(reply.queues)
        return stats

    def create_topic(self, config: TopicConfig, broker: str | None = None) -> None:
        """Create or change a topic on one broker or on every master of the cluster."""
        names = (broker,) if broker is not None else self.masters()
        self._all_must_answer(names, CreateTopic(config))

    def delete_topic(self, name: str) -> None:
        """Delete a topic from its brokers and from the name server's routes."""
        try:
            names = self._brokers_of(name)
        except TopicNotFoundError:
            names = self.masters()
        self._all_must_answer(names, DeleteTopic(name))
        self._ask_one(None, DeleteTopicFromNameServer(name))

    def topic_config(self, name: str) -> TopicConfig:
        """Return a topic's settings at its first broker. Raises TopicNotFoundError."""
        return next(iter(self.topic_configs(name).values()))

    def topic_configs(self, name: str) -> dict[str, TopicConfig]:
        """Return a topic's settings by broker. Raises TopicNotFoundError."""
        brokers = self._brokers_of(name)
        replies = self._ask([(broker, ListTopicConfigs()) for broker in brokers])
        if all(isinstance(reply, RocketMQError) for reply in replies):
            self._raise_first(replies, brokers)
        found = {
            broker: config
            for broker, reply in zip(brokers, replies, strict=True)
            if isinstance(reply, TopicConfigsReply)
            for config in reply.configs
            if config.name == name
        }
        if not found:
            raise TopicNotFoundError(17, f"topic[{name}] not exist at its brokers")
        return found

    # --- offsets ------------------------------------------------------------------------------

    def bounds(self, queues: Iterable[QueueId]) -> dict[QueueId, Bounds | RocketMQError]:
        """Return first and next offset of every queue, or its error.

        A broker answers zeros for a queue that it does not have: only the route says what exists.
        """
        return ask_bounds(self._ask, queues)

    def search_offsets(
        self, timestamps_ms: Mapping[QueueId, int], boundary: Boundary = Boundary.LOWER
    ) -> dict[QueueId, int | RocketMQError]:
        """Search offsets by store time, with the same result on every broker version.

        LOWER finds the first message stored at the time or later, else the queue's end. UPPER
        finds the last one stored at the time or earlier, else the queue's start.
        """
        return search_times(self._ask, timestamps_ms, boundary)

    def earliest_store_times(
        self, queues: Iterable[QueueId]
    ) -> dict[QueueId, int | RocketMQError | None]:
        """Return the store time of every queue's first message; None for an empty queue."""
        return self._values_of({queue: GetEarliestStoreTime(queue) for queue in queues})

    def store_time_at(self, queue: QueueId, offset: int) -> int | None:
        """Return one store time, as `store_times_at` does."""
        return self.store_times_at({queue: offset})[queue]

    def store_times_at(
        self, offsets: Mapping[QueueId, int], *, is_exact: bool = False
    ) -> dict[QueueId, int | None]:
        """Return store times of the messages at offsets, or of the first ones behind them.

        None stands for no message and for a record that cannot be decoded, which reads report.
        `is_exact` accepts no message behind the offset. It takes one round trip.
        """
        replies = self._ask([(queue.broker, one_pull(queue, at)) for queue, at in offsets.items()])
        times: dict[QueueId, int | None] = {}
        for (queue, offset), reply in zip(offsets.items(), replies, strict=True):
            found = None
            if isinstance(reply, PullReply):
                with suppress(CorruptRecordError):
                    found = first_store_time(reply, offset)
            if found is not None and is_exact and found[0] != offset:
                found = None
            times[queue] = found[1] if found is not None else None
        return times

    def pull(
        self,
        queue: QueueId,
        start: int,
        count_max: int,
        *,
        subscription: Subscription | None = None,
        group: str = READER_GROUP,
    ) -> PullReply:
        """Pull once, without waiting for messages to arrive."""
        request = PullMessages(
            group, queue, start, count_max, subscription=subscription or Subscription()
        )
        return self._ask_one(queue.broker, request)

    def read_ranges(self, ranges: Sequence[OffsetRange], spec: ReadSpec) -> Iterator[RangeChunk]:
        """Download ranges; see `Transport.read_ranges`. Waits for brokers within the spec's limits.

        Raises RangeLostError for offsets that are gone, unless the spec skips them.
        """
        return self.transport.read_ranges(ranges, spec)

    # --- groups -------------------------------------------------------------------------------

    def committed_offsets(
        self, group: str, queues: Iterable[QueueId]
    ) -> dict[QueueId, int | RocketMQError | None]:
        """Return a group's committed offset of every queue; None if it has committed nothing.

        A broker of 4.9 answers 0 for both nothing and 0 if the group has committed other queues of
        the topic: then a queue that still has its first message counts as 0.
        """
        # A stored negative value means "absent" to RocketMQ's own clients.
        found = self._values_of({queue: GetCommittedOffset(group, queue) for queue in queues})
        committed = {
            queue: None if isinstance(value, ProgressNotFoundError) else value
            for queue, value in found.items()
        }
        zeros = [queue for queue, value in committed.items() if value == 0]
        committed.update(dict.fromkeys(self._never_committed(group, zeros)))
        return committed

    def commit(
        self, group: str, offsets: Mapping[QueueId, int]
    ) -> dict[QueueId, RocketMQError | None]:
        """Commit a group's offsets and wait for the answers. Overwrites, also with smaller ones."""
        results = self._commit_once(group, offsets)
        unknown = {q: offsets[q] for q, e in results.items() if isinstance(e, GroupNotFoundError)}
        if unknown:
            # Brokers from 5.3.0 on refuse commits of a group that they have never seen, and create
            # the group at its first pull.
            self._ask([(q.broker, one_pull(q, at, group)) for q, at in unknown.items()])
            results.update(self._commit_once(group, unknown))
        return results

    def members(self, group: str, topic: str) -> tuple[str, ...]:
        """Return the client ids of a group's live members, as the topic's brokers know them."""
        names = self._brokers_of(topic)
        replies = self._ask([(name, ListGroupClients(group)) for name in names])
        answered = [reply for reply in replies if isinstance(reply, ClientsReply)]
        if not answered and any(_is_unknown_to_proxy(reply) for reply in replies):
            return ()
        if not answered:
            self._raise_first(replies, names)
        return tuple(sorted({client for reply in answered for client in reply.client_ids}))

    def group_stats(self, group: str, topic: str) -> dict[QueueId, CommittedOffset]:
        """Return a group's committed offset of every queue of a topic, beside the queue's end."""
        stats: dict[QueueId, CommittedOffset] = {}
        for reply in self._ask_brokers(self._brokers_of(topic), GetConsumeStats(group, topic)):
            stats.update(reply.queues)
        return stats

    def groups(self) -> tuple[str, ...]:
        """Return every group that a broker of the cluster knows, sorted."""
        replies = self._ask_brokers(self.masters(), ListGroups())
        return tuple(sorted({g for reply in replies for g in reply.groups}))

    def set_consume_mode(
        self, group: str, topic: str, mode: ConsumeMode, *, share_queue_count: int = 0
    ) -> None:
        """Make a group's members pop a topic, or pull it; members that are online follow.

        `share_queue_count` is the number of following members whose queues each member pops, too;
        with 0 all members pop all queues. The group must exist. Raises the first broker's error.
        """
        request = SetConsumeMode(group, topic, mode, share_queue_count)
        raise_first(self.ask_each(self._brokers_of(topic), request))

    # --- asking -------------------------------------------------------------------------------

    def cluster_info(self) -> ClusterInfo:
        """Return the brokers that the name server knows."""
        return self._ask_one(None, GetCluster()).cluster

    def masters(self) -> tuple[str, ...]:
        """Return the brokers that have a master at the name server, sorted."""
        brokers = self.cluster_info().brokers
        return tuple(sorted(b.name for b in brokers if MASTER_ID in b.addresses))

    def ask_masters(self, request: Request[R]) -> dict[str, R | RocketMQError]:
        """Send a request to every master of the cluster; an error stands in its place."""
        return self.ask_each(self.masters(), request)

    def ask_each(self, names: Sequence[str], request: Request[R]) -> dict[str, R | RocketMQError]:
        """Send a request to each broker, or to its replica while it has no master.

        An error stands in its place.
        """
        if not names:
            self._raise_first((), names)
        replies = self._ask([(name, request) for name in names])
        return cast("dict[str, R | RocketMQError]", dict(zip(names, replies, strict=True)))

    def _commit_once(
        self, group: str, offsets: Mapping[QueueId, int]
    ) -> dict[QueueId, RocketMQError | None]:
        def commit(queues: Sequence[QueueId]) -> dict[QueueId, Reply | RocketMQError]:
            asked = [(q.broker, CommitOffset(group, q, offsets[q])) for q in queues]
            return dict(zip(queues, self._ask(asked), strict=True))

        return {
            queue: answer if isinstance(answer, RocketMQError) else None
            for queue, answer in commit_in_rounds(offsets, commit).items()
        }

    def _never_committed(self, group: str, zeros: Sequence[QueueId]) -> list[QueueId]:
        """Find the queues, out of those answered with 0, whose topic the group never committed.

        Only the brokers' list of the topics that a group has committed distinguishes the two.
        """
        names = sorted({queue.broker for queue in zeros})
        replies = self._ask([(name, GetConsumeStats(group)) for name in names])
        listed = {
            name: {queue.topic for queue in reply.queues}
            for name, reply in zip(names, replies, strict=True)
            if isinstance(reply, ConsumeStatsReply)
        }
        return [q for q in zeros if q.broker in listed and q.topic not in listed[q.broker]]

    def _brokers_of(self, topic: str) -> tuple[str, ...]:
        return tuple(sorted({queues.broker for queues in self.route(topic).queue_sets}))

    def _values_of(
        self, requests: Mapping[QueueId, Request[OffsetReply]]
    ) -> dict[QueueId, int | RocketMQError | None]:
        """Return the value in each queue's answer, or its error; None for a negative one."""
        replies = self._ask([(queue.broker, request) for queue, request in requests.items()])
        values: dict[QueueId, int | RocketMQError | None] = {}
        for queue, reply in zip(requests, replies, strict=True):
            if isinstance(reply, OffsetReply):
                values[queue] = reply.value if reply.value >= 0 else None
            else:
                values[queue] = cast("RocketMQError", reply)
        return values

    def _ask_brokers(self, names: Sequence[str], request: Request[R]) -> list[R]:
        """Return the answers of the brokers that gave one. Raises if none did."""
        replies = self._ask([(name, request) for name in names])
        answers = [reply for reply in replies if not isinstance(reply, RocketMQError)]
        if not answers:
            self._raise_first(replies, names)
        return cast("list[R]", answers)

    def _all_must_answer(self, names: Sequence[str], request: Request[Reply]) -> None:
        replies = self._ask([(name, request) for name in names])
        if not names or any(isinstance(reply, RocketMQError) for reply in replies):
            self._raise_first(replies, names)

    def _raise_first(self, replies: Sequence[Reply | RocketMQError], names: Sequence[str]) -> None:
        for reply in replies:
            if isinstance(reply, RocketMQError):
                raise reply
        if not names:
            where = self.settings.cluster_address
            raise ConnectError(where, "no broker with a master is registered there")

    def _ask_one(self, broker: str | None, request: Request[R]) -> R:
        (reply,) = self._ask([(broker, request)])
        if isinstance(reply, RocketMQError):
            raise reply
        return cast("R", reply)

    def _ask(
        self, requests: Sequence[tuple[str | None, Request[Reply]]]
    ) -> list[Reply | RocketMQError]:
        """Ask all at once; repeatable requests that failed on the way are asked again."""
        timeout_ms = self.settings.request_timeout_ms
        policy = replace(
            self.settings.request_retry, limit_ms=timeout_ms, tries_max=REQUEST_TRIES_MAX
        )
        retry = Retry(policy, self.clock)
        replies: list[Reply | RocketMQError] = self.transport.call_many(
            requests, timeout_ms=timeout_ms
        )
        while again := [i for i, one in enumerate(replies) if _may_repeat(requests[i][1], one)]:
            if not retry.pause() or (left_ms := timeout_ms - retry.waited_ms) <= 0:
                break
            answers = self.transport.call_many([requests[i] for i in again], timeout_ms=left_ms)
            for index, answer in zip(again, answers, strict=True):
                replies[index] = answer
        return replies


def _is_unknown_to_proxy(reply: Reply | RocketMQError) -> bool:
    """Whether this is a 5.x proxy's answer about a group without members: an internal error."""
    if not isinstance(reply, BrokerError) or reply.code != ResponseCode.SYSTEM_ERROR:
        return False
    return '"consumerGroupInfo" is null' in (reply.remark or "")


def _may_repeat(request: Request[Reply], reply: Reply | RocketMQError) -> bool:
    if isinstance(reply, UnsupportedRequestError):
        return False
    return isinstance(reply, RocketMQError) and reply.retryable and request.repeatable


def no_route(cluster: Cluster, topics: Iterable[str]) -> TopicNotFoundError:
    """The error for missing topics; for one, it names the topic whose name is most similar."""
    missing = sorted(topics)
    try:
        known = [name for name in cluster.topics() if not is_internal_topic(name)]
    except RocketMQError:
        known = []
    hint = did_you_mean(missing[0], known) if len(missing) == 1 else ""
    return TopicNotFoundError(17, f"no route to topic {', '.join(missing)}{hint and f'.{hint}'}")
