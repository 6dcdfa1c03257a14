"""The driver of a stream that is a member of its consumer group (option joinGroup).

The group's committed offsets and the checkpoint work together:

    a batch begins    with the queues that this member owns then, each at the group's committed
                      offset, or at this query's own checkpoint if that is further
    while it runs     the member holds its queues: no other query of the group gets them
    it is durable     its ends become the committed offsets; the member hands over queues that the
                      group assigns to others
    the checkpoint    holds the queues of one batch; queues gained since are anchored in `starts`

A new group begins at the ends of its topics, unless startingOffsets says otherwise: its first
member commits them before it joins.

So queries of one group lose no message, and read none twice while they run and stop in order. If a
query dies, the next owner of its queues reads, a minute later, from the committed offsets before
its last batch; the query itself repeats that batch when it starts again, as every stream does.
Members that consume concurrently (push consumers, Java's too) use no queue locks: when they gain a
queue from a query they begin at once, beside the batch that still runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.errors import raise_or_skip_loss
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.planning.topic_identity import TopicIdentity
from pyspark_rocketmq.read.cluster_scan import first_scan
from pyspark_rocketmq.stream.admission import Backlog
from pyspark_rocketmq.stream.driver import Offset
from pyspark_rocketmq.stream.offset_driver import OffsetDriver, Ports
from rocketmq_client.cluster import no_route
from rocketmq_client.consumer.allocation import Average, AverageByCircle, ConsistentHash, Strategy
from rocketmq_client.consumer.batch_member import BatchMember
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings
from rocketmq_client.loss import LossReason, judge_offset
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import raise_first, split_answers
from rocketmq_wire.model import Bounds, QueueId

_log = logging.getLogger("pyspark_rocketmq")

_FLUSH_MS: Final = 3_000
_DOUBT_MS: Final = 1_000

_STRATEGIES: Final[dict[str, Callable[[], Strategy]]] = {
    "AVG": Average,
    "AVG_BY_CIRCLE": AverageByCircle,
    "CONSISTENT_HASH": ConsistentHash,
}


def group_settings(options: ReadOptions) -> ConsumerSettings:
    """Return the settings of the query as a member; the group's committed offsets beat them."""
    begin = str(options.starting_offsets or "latest")
    consume_from = ConsumeFrom.LAST if begin.endswith("latest") else ConsumeFrom.FIRST
    if options.starting_timestamp is not None:
        consume_from = ConsumeFrom.TIMESTAMP
    return ConsumerSettings(
        group=options.consumer.group or "",
        subscriptions=dict.fromkeys(options.subscribe or (), options.subscription),
        consume_from=consume_from,
        consume_timestamp_ms=options.starting_timestamp,
        strategy=_STRATEGIES[options.consumer.allocate_strategy](),
        request_timeout_ms=min(options.connection.request_timeout_ms, 60_000),
        route_ms=min(options.discovery_interval_ms, 30_000),
    )


def open_batch_member(
    settings: ConnectionSettings, options: ReadOptions, known: Mapping[QueueId, int]
) -> BatchMember:
    return BatchMember(settings, group_settings(options), known).start()


@dataclass(frozen=True, slots=True)
class GroupMemberPorts(Ports):
    open_batch_member: Callable[
        [ConnectionSettings, ReadOptions, Mapping[QueueId, int]], BatchMember
    ] = open_batch_member


class GroupMemberDriver(OffsetDriver):
    """Plans one query's micro-batches; answers `StreamDriver`."""

    def __init__(self, options: ReadOptions, ports: GroupMemberPorts | None = None) -> None:
        ports = ports or GroupMemberPorts()
        super().__init__(options, ports)
        self._open_batch_member = ports.open_batch_member
        self._member: BatchMember | None = None
        self._watched: frozenset[QueueId] = frozenset()
        self._judged: set[QueueId] = set()
        """The owned queues whose offset was found in order, or corrected."""
        self._doubted_ms = -_DOUBT_MS

    # --- Spark's calls --------------------------------------------------------------------------

    def initial_offset(self) -> Offset:
        """See `StreamDriver`. A new query owns no queue yet, so it names none."""
        return SourceOffset.initial({}, {}).to_json()

    def prepare_available_now(self) -> None:
        """See `StreamDriver`. The end of a queue gained during the run is frozen when it comes."""
        self._admission.available_now.freeze(self._ends)

    def confirm(self, end: Offset) -> None:
        """See `StreamDriver`. The start of the next batch says the same."""

    def close(self) -> None:
        """Leave the group, with what is durable stored."""
        if self._member is not None:
            self._member.close()
        super().close()

    # --- a call of Spark ------------------------------------------------------------------------

    def _begin_call(self, start: SourceOffset) -> None:
        member = self._member or self._join(start)
        if not start.is_initial:
            member.commit(start.offsets)
        # Spark asks for a batch only when none runs: queues still held were never read.
        member.release(member.taken)

    def _join(self, start: SourceOffset) -> BatchMember:
        settings = group_settings(self._options)
        begins_at_end = start.is_initial and settings.consume_from is ConsumeFrom.LAST
        scan = first_scan(
            self._cluster, self._options, is_whole=begins_at_end, with_first_store_times=False
        )
        if scan.absent_topics:
            raise no_route(self._cluster, scan.absent_topics)
        if begins_at_end:
            self._commit_ends(settings.group, scan.bounds)
        known = {} if start.is_initial else start.offsets
        self._identity = TopicIdentity(start.first_store_times, start.first_offsets)
        member = self._open_batch_member(self._settings, self._options, known)
        self._member = member
        # A run with AvailableNow would otherwise end before it owned a queue.
        member.wait_for_queues(self._options.connection.connect_timeout_ms)
        return member

    def _commit_ends(self, group: str, bounds: Mapping[QueueId, Bounds]) -> None:
        """Commit the ends of topics of which the group knows nothing: it begins there.

        Without a committed offset it would begin at 0 where a queue has its first message still,
        and a member that gains a queue later would skip what was sent until then.
        """
        committed = raise_first(self._cluster.committed_offsets(group, tuple(bounds)))
        known = {queue.topic for queue, offset in committed.items() if offset is not None}
        for topic in {queue.topic for queue in bounds} - known:
            if not self._cluster.members(group, topic):
                ends = {queue: held.end for queue, held in bounds.items() if queue.topic == topic}
                raise_first(self._cluster.commit(group, ends))

    def _release_unread(self, backlog: Backlog, end: SourceOffset | None) -> None:
        """Let other members have the queues from which the batch reads nothing."""
        assert self._member is not None
        self._member.release(
            queue
            for queue, offset in backlog.offsets.items()
            if end is None or end.offsets[queue] == offset
        )

    def _flush(self) -> None:
        assert self._member is not None
        self._member.flush(_FLUSH_MS)

    # --- what may be read -----------------------------------------------------------------------

    def _backlog(self, start: SourceOffset) -> Backlog:
        del start  # The group's committed offsets say where each queue begins.
        assert self._member is not None
        offsets = self._member.take()
        self._judge_gained(self._member, offsets)
        if not self._admission.available_now.is_frozen and self._watched != offsets.keys():
            self._watched = frozenset(offsets)
            self._watch(tuple(sorted(offsets)))
        if self._watcher is not None:
            found = self._watcher.ends()
            self._ends.update({queue: end for queue, end in found.items() if queue in offsets})
        self._ends = {queue: end for queue, end in self._ends.items() if queue in self._watched}
        self._judge_passed(self._member, offsets)
        return self._admission.backlog(offsets, self._ends)

    def _judge_gained(self, member: BatchMember, offsets: dict[QueueId, int]) -> None:
        """Judge the queues that this member gained: what they hold, and what is gone."""
        self._judged &= offsets.keys()
        self._judge(member, offsets, [queue for queue in offsets if queue not in self._judged])

    def _judge_passed(self, member: BatchMember, offsets: dict[QueueId, int]) -> None:
        """Judge, once a second at most, queues that seem to end before the next offset."""
        passed = [queue for queue, at in offsets.items() if self._ends.get(queue, at) < at]
        if passed and self._ports.now_ms() - self._doubted_ms >= _DOUBT_MS:
            self._doubted_ms = self._ports.now_ms()
            self._judge(member, offsets, passed)

    def _judge(
        self, member: BatchMember, offsets: dict[QueueId, int], queues: list[QueueId]
    ) -> None:
        bounds, errors = split_answers(self._cluster.bounds(queues) if queues else {})
        for queue, error in errors.items():
            _log.warning("%s: its offsets are not known now: %s", queue, error)
            member.release([queue])
            del offsets[queue]
        first_store_times = self._first_store_times(bounds)
        for queue, held in bounds.items():
            loss = judge_offset(
                queue,
                offsets[queue],
                held,
                first_offset_seen=self._identity.first_offset(queue),
                first_store_time=self._identity.first_store_time(queue),
                first_store_time_now=first_store_times.get(queue),
            )
            if loss is not None:
                fails = self._options.fail_on_data_loss
                offsets[queue] = raise_or_skip_loss(loss, fail_on_data_loss=fails)
                member.seek(queue, offsets[queue])
            is_recreated = loss is not None and loss.reason is LossReason.TOPIC_RECREATED
            if is_recreated or offsets[queue] == 0:
                self._identity.forget(queue)  # Nothing of it was read.
            self._identity.note(queue, held, first_store_times.get(queue))
            self._judged.add(queue)
            self._ends[queue] = held.end
            if self._admission.available_now.is_frozen:
                self._watched |= {queue}
                self._admission.available_now.freeze_gained(queue, held.end)
