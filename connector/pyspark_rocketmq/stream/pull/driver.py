"""The driver's side of a stream, without Spark: starts and limits -> source offsets.

Everything here runs in the one process that Spark keeps for a query's source. Arrivals, discovery
and group progress run in threads; calls from Spark look at what those know and return. Brokers are
asked in such a call only at a query's start, while a place is in doubt (at most once a second), for
the birth of a queue that is read from its first offset, and for samples of message sizes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.consumer_group.commit import OffsetCommitter
from pyspark_rocketmq.options.parse import ReadOptions
from pyspark_rocketmq.planning.checkpoint import ParsedOffsets, SourceOffset, nested
from pyspark_rocketmq.planning.micro_batch import GUESSED_BYTES, Limits, admit, advance, backlogs
from pyspark_rocketmq.read.cluster_scan import (
    ClusterScan,
    find_first_store_times,
    first_scan,
    report_missing,
    require_topics,
)
from pyspark_rocketmq.read.starting_offsets import starting_places
from pyspark_rocketmq.stream.message_size import MessageSize
from pyspark_rocketmq.stream.pull.discovery import Discovery
from pyspark_rocketmq.stream.pull.positions import StreamOffsets
from pyspark_rocketmq.stream.replayed_batch import drop_recreated_queues
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.offsets.end_offset_watcher import EndOffsetWatcher
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Bounds, OffsetRange, QueueId
from rocketmq_wire.plural import plural

_log = logging.getLogger("pyspark_rocketmq")

# Spark asks every source in turn: whoever waits makes the others wait.
_WAIT_MS: Final = 100
# Calls closer together than this mean that the whole query is idle: only then is there nobody to
# keep waiting. After a batch the first call answers at once.
_IDLE_CALL_MS: Final = 60
_FLUSH_MS: Final = 3_000


@dataclass(frozen=True, slots=True)
class Ports:
    """What the driver reaches the outside world through; tests give their own."""

    open_cluster: Callable[[ConnectionSettings], Cluster] = open_cluster
    open_watch: Callable[..., EndOffsetWatcher] = EndOffsetWatcher
    now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    sleep_ms: Callable[[int], None] = lambda ms: time.sleep(ms / 1_000)


class _Look(NamedTuple):
    offsets: Mapping[QueueId, int]
    """Where reading goes on."""
    waiting: Mapping[QueueId, int]
    """How many messages wait there."""


class StreamDriver:
    """Plans one query's micro-batches."""

    def __init__(
        self,
        options: ReadOptions,
        ports: Ports | None = None,
        parsed: ParsedOffsets | None = None,
    ) -> None:
        self._options = options
        self._ports = ports or Ports()
        self._settings = connection_settings(options)
        self._cluster = self._ports.open_cluster(self._settings)
        self._limits = Limits(
            options.max_offsets_per_trigger,
            options.min_offsets_per_trigger,
            options.max_bytes_per_trigger,
            options.max_trigger_delay,
        )
        self._size = MessageSize(options)
        self._offsets = StreamOffsets(options, self._ports.now_ms)
        self._first: ClusterScan | None = None
        self._initial: dict[str, Any] | None = None
        self._target: dict[QueueId, int] | None = None
        self._has_begun = False
        self._ends: dict[QueueId, int] = {}
        self._watch: EndOffsetWatcher | None = None
        self._lookout: Discovery | None = None
        self._committer: OffsetCommitter | None = None
        self._parsed = parsed or ParsedOffsets()
        self._reported: tuple[dict[QueueId, int], dict[str, Any]] | None = None
        self._last_batch_ms = self._ports.now_ms()
        self._last_return_ms = 0
        self._silent: frozenset[str] = frozenset()
        """The brokers whose new messages cannot be asked for."""

    # --- what Spark calls -----------------------------------------------------------------------

    def initial_offset(self) -> dict[str, Any]:
        """Where a new query begins; the same answer however often it is asked."""
        if self._initial is None:
            survey = self._survey((), is_whole=True)
            report_missing(survey)
            require_topics(survey, self._options)
            places = starting_places(self._options, self._cluster, survey.bounds, "latest")
            self._initial = SourceOffset.initial(places.offsets, survey.first_store_times).to_json()
        return self._initial

    def prepare_available_now(self) -> None:
        """Fix how far this run reads: to what is there now."""
        survey = self._survey((), is_whole=False)
        if survey.unreachable:
            error = next(iter(survey.unreachable.values()))
            _log.warning(
                "%s out of reach, left to a later run: %s",
                plural(len(survey.unreachable), "queue"),
                error,
            )
        self._target = {queue: held.end for queue, held in survey.bounds.items()}

    def latest_offset(self, value: dict[str, Any], *, is_unlimited: bool) -> dict[str, Any]:
        """The end of the next micro-batch; `value` itself when there is none yet."""
        try:
            start = self._parse(value)
            if not self._has_begun:
                self._begin(start)
            if not start.is_initial and self._options.commit_offsets == "true":
                self.confirm(start)
            self._look()
            end = self._plan(start, is_unlimited=is_unlimited)
            if end is None:
                if self._target is not None and self._committer is not None:
                    # The last call of this run: whoever waits for its end sees its progress.
                    self._committer.flush(_FLUSH_MS)
                return value
            if self._committer is not None:
                self._committer.planned(end.offsets)
            self._last_batch_ms = self._ports.now_ms()
            return self._parsed.write(end)
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
        """How far the queues reach, for Spark's progress report."""
        if not self._ends:
            return None
        if self._reported is None or self._reported[0] is not self._ends:
            self._reported = (self._ends, {"version": 1, "offsets": nested(self._ends)})
        return self._reported[1]

    def confirm(self, durable: SourceOffset) -> None:
        """Commit the end of a batch that Spark has finished as the group's progress."""
        if self._committer is not None:
            self._committer.offer(self._offsets.selected(durable))

    def commits(self) -> bool:
        """True when this query keeps a group's progress."""
        return self._options.group is not None and self._options.commit_offsets != "false"

    def close(self) -> None:
        """Send what progress is left and stop the threads, within seconds."""
        if self._committer is not None:
            self._committer.close()
        if self._lookout is not None:
            self._lookout.close()
        if self._watch is not None:
            self._watch.close()
        self._cluster.close()

    # --- how it gets there ----------------------------------------------------------------------

    def _open(self) -> Cluster:
        return self._ports.open_cluster(self._settings)

    def _parse(self, value: dict[str, Any]) -> SourceOffset:
        return self._parsed.parse(value)

    def _survey(self, also: tuple[str, ...], *, is_whole: bool) -> ClusterScan:
        """One look at the cluster serves every call that begins a query."""
        first = self._first
        if first is None or (is_whole and first.unreachable) or set(also) - self._seen(first):
            first = first_scan(self._cluster, self._options, also, is_whole=is_whole)
            self._first = first
        return first

    @staticmethod
    def _seen(survey: ClusterScan) -> set[str]:
        return {queue.topic for queue in survey.queues} | survey.absent_topics

    def _begin(self, start: SourceOffset) -> None:
        topics = tuple(sorted({queue.topic for queue in start.offsets}))
        survey = self._survey(topics, is_whole=False)
        self._offsets.begin(self._cluster, start, survey)
        if self.commits() and self._committer is None:
            group = self._options.group or ""
            committer = OffsetCommitter(self._open, group, self._offsets.asked_topics)
            committer.claim(self._cluster)
            self._committer = committer
        if self._target is None:
            self._watch = self._ports.open_watch(
                self._settings,
                self._offsets.live_queues(),
                hold_ms=self._options.suspend_timeout_ms,
            )
            self._lookout = Discovery(
                self._open,
                self._options,
                self._offsets.topics,
                self._options.discovery_interval_ms,
            )
            self._lookout.start()
        self._has_begun = True

    def _look(self) -> None:
        found = self._lookout.take() if self._lookout is not None else None
        if found is not None and self._watch is not None:
            self._offsets.survey(found)
            self._watch.set_queues(self._offsets.live_queues())

    def _refresh_ends(self) -> None:
        ends = dict(self._offsets.ends)
        if self._watch is not None:
            ends.update(self._watch.ends())
            self._report_silence(self._watch.errors())
        if ends != self._ends:
            self._ends = ends

    def _report_silence(self, errors: Mapping[QueueId, RocketMQError]) -> None:
        """Say once of each broker that it is away, and that it is back."""
        reasons = {queue.broker: error for queue, error in errors.items()}
        for broker in sorted(reasons.keys() - self._silent):
            _log.warning(
                "%s cannot be asked for new messages. Its queues wait until it is back, the others "
                "go on; a task that reads from it waits for up to %.0f s (retry.outageMs): %s",
                broker,
                self._options.retry_outage_ms / 1_000,
                reasons[broker],
            )
        for broker in sorted(self._silent - reasons.keys()):
            _log.warning("%s answers again", broker)
        self._silent = frozenset(reasons)

    def _plan(self, start: SourceOffset, *, is_unlimited: bool) -> SourceOffset | None:
        limits = self._limits_now(is_unlimited=is_unlimited)
        look = self._look_at(start)
        end = self._end_of(start, look, limits)
        is_idle = self._ports.now_ms() - self._last_return_ms < _IDLE_CALL_MS
        if end is None and is_idle and self._watch is not None:
            self._wait(self._watch, look, limits)
            end = self._end_of(start, self._look_at(start), limits)
        return end

    def _limits_now(self, *, is_unlimited: bool) -> Limits:
        if is_unlimited:
            return Limits()
        if self._target is not None:
            # What is there now is all that this run will ever see: no use in waiting for more.
            return Limits(self._limits.messages_max, None, self._limits.bytes_max)
        return self._limits

    def _look_at(self, start: SourceOffset) -> _Look:
        self._refresh_ends()
        offsets = self._offsets.of(self._cluster, start, self._ends)
        if len(offsets) > len(start.offsets):
            self._refresh_ends()  # A queue was found, and with it its end.
        ends = self._ends if self._target is None else self._target
        return _Look(offsets, backlogs(offsets, ends))

    def _end_of(self, start: SourceOffset, look: _Look, limits: Limits) -> SourceOffset | None:
        """The end of the next micro-batch from what is known now; None: there is none yet."""
        per_message = GUESSED_BYTES
        if limits.bytes_max is not None and look.waiting:
            per_message = self._size.estimate(
                self._cluster, look.offsets, look.waiting, now_ms=self._ports.now_ms()
            )
        taken = admit(
            look.waiting, limits, waited_ms=self._waited_ms(), bytes_per_message=per_message
        )
        if not taken and not self._has_moved(start, look.offsets):
            return None
        self._mark_young(look.offsets, taken)
        return advance(start, look.offsets, taken, *self._offsets.identity.written())

    def _wait(self, watch: EndOffsetWatcher, look: _Look, limits: Limits) -> None:
        """Wait a little for messages: for the first, or for as many as a batch must have."""
        if not look.waiting:
            watch.wait(look.offsets, _WAIT_MS)
        else:
            # Every arrival is a question to the broker for who waits for arrivals. Here one of them
            # is seldom enough, so the ends are asked for when the time is over, and only then.
            self._ports.sleep_ms(min(_WAIT_MS, max(1, limits.delay_ms_max - self._waited_ms())))

    def _waited_ms(self) -> int:
        return self._ports.now_ms() - self._last_batch_ms

    @staticmethod
    def _has_moved(start: SourceOffset, offsets: Mapping[QueueId, int]) -> bool:
        # A queue found or a place corrected is written down at once, though nothing is read.
        return offsets is not start.offsets and dict(offsets) != dict(start.offsets)

    def _mark_young(self, offsets: Mapping[QueueId, int], taken: Mapping[QueueId, int]) -> None:
        """A queue read from offset 0 on shows when that was stored, once."""
        identity = self._offsets.identity
        young = [q for q in taken if offsets[q] == 0 and identity.first_store_time(q) is None]
        if not young:
            return
        first = Bounds(0, 1)
        try:
            for queue, first_store_time in find_first_store_times(
                self._cluster, dict.fromkeys(young, first)
            ).items():
                identity.note(queue, first, first_store_time)
        except RocketMQError as error:
            _log.warning("cannot tell when the first messages were stored: %s", error)
