"""The driver's side of a stream that is a member of its group (option joinGroup).

The group's progress and the checkpoint go together like this:

    a batch begins    with the queues that this member has then, each where the group's progress
                      stands, or where this query's own checkpoint is further
    while it runs     its queues are held: no other query of the group has them
    it is durable     its ends become the group's progress; queues wanted elsewhere go
    the checkpoint    holds a batch's queues alone: what comes and goes is anchored in `starts`

So between queries of one group nothing is lost, and nothing is read twice while they run and stop
in order. A query that dies takes its last batch with it: whoever has its queues next, a minute
later, reads from the progress before it, and the query itself, started again, repeats that batch
as every stream does. Members that consume concurrently (push consumers, Java's too) know no queue
locks: when they get a queue from a query they begin at once, beside the batch that still runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.errors import Loss
from pyspark_rocketmq.options.parse import ReadOptions
from pyspark_rocketmq.planning.checkpoint import SourceOffset, nested
from pyspark_rocketmq.planning.micro_batch import (
    GUESSED_BYTES,
    Limits,
    admit,
    advance,
    backlogs,
    judge,
)
from pyspark_rocketmq.planning.topic_identity import TopicIdentity
from pyspark_rocketmq.read.cluster_scan import find_first_store_times, first_scan, no_route
from pyspark_rocketmq.read.starting_offsets import go_on
from pyspark_rocketmq.stream.message_size import MessageSize
from pyspark_rocketmq.stream.pull.driver import Ports
from pyspark_rocketmq.stream.replayed_batch import drop_recreated_queues
from rocketmq_client.cluster import Cluster
from rocketmq_client.consumer.allocation.strategies import (
    Average,
    AverageByCircle,
    ConsistentHash,
    Strategy,
)
from rocketmq_client.consumer.batch_member import BatchMember
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.offset_store.start_offset import ConsumeFrom
from rocketmq_client.offsets.end_offset_watcher import EndOffsetWatcher
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Bounds, OffsetRange, QueueId

_log = logging.getLogger("pyspark_rocketmq")

_WAIT_MS: Final = 100
_IDLE_CALL_MS: Final = 60
_FLUSH_MS: Final = 3_000
_DOUBT_MS: Final = 1_000
_YOUNG: Final = Bounds(0, 1)

_STRATEGIES: Final[dict[str, Callable[[], Strategy]]] = {
    "AVG": Average,
    "AVG_BY_CIRCLE": AverageByCircle,
    "CONSISTENT_HASH": ConsistentHash,
}


def group_settings(options: ReadOptions) -> ConsumerSettings:
    """The member that a query is which joins its group. The group's progress goes before these."""
    begin = str(options.starting_offsets or "latest")
    consume_from = ConsumeFrom.LAST if begin.endswith("latest") else ConsumeFrom.FIRST
    if options.starting_timestamp is not None:
        consume_from = ConsumeFrom.TIMESTAMP
    return ConsumerSettings(
        group=options.group or "",
        subscriptions=dict.fromkeys(options.subscribe or (), options.subscription),
        consume_from=consume_from,
        consume_timestamp_ms=options.starting_timestamp,
        strategy=_STRATEGIES[options.allocate_strategy](),
        request_timeout_ms=min(options.request_timeout_ms, 60_000),
        route_ms=min(options.discovery_interval_ms, 30_000),
    )


def open_batch_member(
    settings: ConnectionSettings, options: ReadOptions, known: Mapping[QueueId, int]
) -> BatchMember:
    """Join the options' group."""
    return BatchMember(settings, group_settings(options)).start(known)


@dataclass(frozen=True, slots=True)
class JoinedPorts(Ports):
    """See `Ports`; the seat too is given by tests."""

    open_batch_member: Callable[
        [ConnectionSettings, ReadOptions, Mapping[QueueId, int]], BatchMember
    ] = open_batch_member


class _Look(NamedTuple):
    offsets: Mapping[QueueId, int]
    """Where reading goes on, of the queues that are held."""
    waiting: Mapping[QueueId, int]
    """How many messages wait there."""


class JoinedDriver:
    """Plans one query's micro-batches; asked as `StreamDriver` is."""

    def __init__(self, options: ReadOptions, ports: JoinedPorts | None = None) -> None:
        self._options = options
        self._ports = ports or JoinedPorts()
        self._settings = connection_settings(options)
        self._cluster: Cluster = self._ports.open_cluster(self._settings)
        self._limits = Limits(
            options.max_offsets_per_trigger,
            options.min_offsets_per_trigger,
            options.max_bytes_per_trigger,
            options.max_trigger_delay,
        )
        self._size = MessageSize(options)
        self._seat: BatchMember | None = None
        self._watch: EndOffsetWatcher | None = None
        self._watched: frozenset[QueueId] = frozenset()
        self._ends: dict[QueueId, int] = {}
        self._identity = TopicIdentity()
        """What tells this query's queues from those of a topic that was created anew."""
        self._judged: set[QueueId] = set()
        """The queues whose place was found in order, or corrected, since they are had."""
        self._doubted_ms = -_DOUBT_MS
        self._is_bounded = False
        self._target: dict[QueueId, int] = {}
        """AvailableNow: how far this run reads."""
        self._known: tuple[dict[str, Any], SourceOffset] | None = None
        self._last_batch_ms = self._ports.now_ms()
        self._last_return_ms = 0

    # --- what Spark calls -----------------------------------------------------------------------

    def initial_offset(self) -> dict[str, Any]:
        """A new query has no queue yet: where each begins is known when it is had."""
        return SourceOffset.initial({}, {}).to_json()

    def prepare_available_now(self) -> None:
        """Read what is there now in the queues that are had during the run."""
        self._is_bounded = True

    def latest_offset(self, value: dict[str, Any], *, is_unlimited: bool) -> dict[str, Any]:
        """The end of the next micro-batch; `value` itself when there is none yet."""
        try:
            start = self._parse(value)
            seat = self._seat or self._join(start)
            if not start.is_initial:
                seat.settle(start.offsets)
            # Spark asks for a batch only when none runs: what is held still was never read.
            seat.release(seat.held)
            end = self._plan(seat, start, is_unlimited=is_unlimited)
            if end is None:
                if self._is_bounded:
                    seat.flush(_FLUSH_MS)
                return value
            self._last_batch_ms = self._ports.now_ms()
            self._known = (end.to_json(), end)
            return self._known[0]
        finally:
            self._last_return_ms = self._ports.now_ms()

    def drop_recreated_queues(
        self, ranges: Sequence[OffsetRange], planned: SourceOffset
    ) -> list[OffsetRange]:
        """What of a logged batch can be read again. Raises DataLossError."""
        return drop_recreated_queues(self._cluster, self._options, ranges, planned)

    def places(self) -> dict[str, str]:
        """Where the brokers are that it knows."""
        return self._cluster.places()

    def skip_minimum_wait(self) -> None:
        """Let the next batch not wait for a minimum: it may be the only one of this run."""
        self._last_batch_ms = self._ports.now_ms() - self._limits.delay_ms_max

    def report_latest(self) -> dict[str, Any] | None:
        """How far this member's queues reach, for Spark's progress report."""
        if not self._ends:
            return None
        return {"version": 1, "offsets": nested(self._ends)}

    def confirm(self, durable: SourceOffset) -> None:
        """Spark has written down that it is done with everything before this."""
        if self._seat is not None:
            self._seat.settle(durable.offsets)

    def commits(self) -> bool:
        """A member's batches are the group's progress."""
        return True

    def close(self) -> None:
        """Leave the group, with what is durable stored."""
        if self._seat is not None:
            self._seat.close()
        if self._watch is not None:
            self._watch.close()
        self._cluster.close()

    # --- how it gets there ----------------------------------------------------------------------

    def _parse(self, value: dict[str, Any]) -> SourceOffset:
        if self._known is None or self._known[0] != value:
            self._known = (value, SourceOffset.from_json(value))
        return self._known[1]

    def _join(self, start: SourceOffset) -> BatchMember:
        survey = first_scan(
            self._cluster, self._options, is_whole=False, with_first_store_times=False
        )
        if survey.absent_topics:
            raise no_route(survey.absent_topics)
        known = {} if start.is_initial else start.offsets
        self._identity = TopicIdentity(start.first_store_times, start.first_offsets)
        seat = self._seat = self._ports.open_batch_member(self._settings, self._options, known)
        # A run that ends by itself would end before it had a queue.
        seat.wait_for_share(self._options.connect_timeout_ms)
        return seat

    def _plan(
        self, seat: BatchMember, start: SourceOffset, *, is_unlimited: bool
    ) -> SourceOffset | None:
        limits = self._limits_now(is_unlimited=is_unlimited)
        look = self._look(seat)
        end = self._end_of(start, look, limits)
        if end is None:
            # Whoever is to have these may have them while nothing is read here.
            seat.release(look.offsets)
            if self._watch is not None and self._is_idle():
                self._wait(self._watch, look, limits)
                look = self._look(seat)
                end = self._end_of(start, look, limits)
        seat.release(q for q, at in look.offsets.items() if end is None or end.offsets[q] == at)
        return end

    def _is_idle(self) -> bool:
        return self._ports.now_ms() - self._last_return_ms < _IDLE_CALL_MS

    def _limits_now(self, *, is_unlimited: bool) -> Limits:
        if is_unlimited:
            return Limits()
        if self._is_bounded:
            return Limits(self._limits.messages_max, None, self._limits.bytes_max)
        return self._limits

    def _look(self, seat: BatchMember) -> _Look:
        """Hold what may be read, and see what waits there. Raises DataLossError."""
        places = seat.take()
        self._judge_gained(seat, places)
        if not self._is_bounded:
            self._follow(places)
        if self._watch is not None:
            found = self._watch.ends()
            self._ends.update({queue: end for queue, end in found.items() if queue in places})
        self._ends = {queue: end for queue, end in self._ends.items() if queue in self._watched}
        self._judge_passed(seat, places)
        ends = self._target if self._is_bounded else self._ends
        return _Look(places, backlogs(places, ends))

    def _follow(self, places: Mapping[QueueId, int]) -> None:
        """Watch the queues that are had."""
        wanted = frozenset(places)
        if wanted == self._watched:
            return
        self._watched = wanted
        queues = tuple(sorted(wanted))
        if self._watch is None:
            hold_ms = self._options.suspend_timeout_ms
            self._watch = self._ports.open_watch(self._settings, queues, hold_ms=hold_ms)
        else:
            self._watch.set_queues(queues)

    def _judge_gained(self, seat: BatchMember, places: dict[QueueId, int]) -> None:
        """Look at queues that are new to this member: what they hold, and what is gone."""
        self._judged &= places.keys()
        self._judge(seat, places, [queue for queue in places if queue not in self._judged])

    def _judge_passed(self, seat: BatchMember, places: dict[QueueId, int]) -> None:
        """A queue that seems to end before the place in it is looked at with fresh eyes."""
        passed = [queue for queue, at in places.items() if self._ends.get(queue, at) < at]
        if passed and self._ports.now_ms() - self._doubted_ms >= _DOUBT_MS:
            self._doubted_ms = self._ports.now_ms()
            self._judge(seat, places, passed)

    def _judge(self, seat: BatchMember, places: dict[QueueId, int], queues: list[QueueId]) -> None:
        bounds = self._cluster.bounds(queues) if queues else {}
        first_store_times = self._births(
            {q: held for q, held in bounds.items() if isinstance(held, Bounds)}
        )
        for queue, held in bounds.items():
            if not isinstance(held, Bounds):
                _log.warning("%s: what it holds is not known now: %s", queue, held)
                seat.release([queue])
                del places[queue]
                continue
            loss = judge(
                queue,
                places[queue],
                held,
                first_offset_seen=self._identity.first_offset(queue),
                first_store_time=self._identity.first_store_time(queue),
                first_store_time_now=first_store_times.get(queue),
            )
            if loss is not None:
                places[queue] = go_on(self._options, loss)
                seat.move(queue, places[queue])
            if places[queue] == 0 or (loss is not None and loss.loss is Loss.TOPIC_RECREATED):
                self._identity.forget(queue)  # Nothing of it was read.
            self._identity.note(queue, held, first_store_times.get(queue))
            self._judged.add(queue)
            self._ends[queue] = held.end
            self._watched |= {queue} if self._is_bounded else set()
            self._target.setdefault(queue, held.end)

    def _births(self, bounds: Mapping[QueueId, Bounds]) -> Mapping[QueueId, int]:
        try:
            return find_first_store_times(self._cluster, bounds) if bounds else {}
        except RocketMQError as error:
            _log.warning("cannot tell when the first messages were stored: %s", error)
            return {}

    def _end_of(self, start: SourceOffset, look: _Look, limits: Limits) -> SourceOffset | None:
        per_message = GUESSED_BYTES
        if limits.bytes_max is not None and look.waiting:
            per_message = self._size.estimate(
                self._cluster, look.offsets, look.waiting, now_ms=self._ports.now_ms()
            )
        waited_ms = self._ports.now_ms() - self._last_batch_ms
        taken = admit(look.waiting, limits, waited_ms=waited_ms, bytes_per_message=per_message)
        if not taken:
            # Queues that come or go are no reason for a batch: the next one writes them down.
            return None
        # A queue read from offset 0 on shows when that was stored, once.
        young = [
            q for q in taken if look.offsets[q] == 0 and self._identity.first_store_time(q) is None
        ]
        for queue, first_store_time in self._births(dict.fromkeys(young, _YOUNG)).items():
            self._identity.note(queue, _YOUNG, first_store_time)
        return advance(start, look.offsets, taken, *self._identity.written())

    def _wait(self, watch: EndOffsetWatcher, look: _Look, limits: Limits) -> None:
        if not look.waiting:
            watch.wait(look.offsets, _WAIT_MS)
            return
        waited_ms = self._ports.now_ms() - self._last_batch_ms
        self._ports.sleep_ms(min(_WAIT_MS, max(1, limits.delay_ms_max - waited_ms)))
