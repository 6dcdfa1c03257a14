"""What the two drivers that read by offset share: a call of Spark -> the end of a micro-batch.

`PullDriver` and `GroupMemberDriver` say which offset of which queue comes next (`_backlog`); here
the admission decides how much of it a batch takes.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.checkpoint import ParsedOffsets, SourceOffset, nested
from pyspark_rocketmq.planning.micro_batch import advance, ranges_between
from pyspark_rocketmq.planning.split import Split, divide
from pyspark_rocketmq.planning.topic_identity import TopicIdentity
from pyspark_rocketmq.read.cluster_scan import find_first_store_times
from pyspark_rocketmq.read.recreated_topics import Identities, drop_recreated_queues
from pyspark_rocketmq.read.task import RangePartition, pause_garbage_collection, range_partitions
from pyspark_rocketmq.stream.admission import Backlog, OffsetAdmission
from pyspark_rocketmq.stream.driver import Offset
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.offsets.end_offset_watcher import EndOffsetWatcher
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Bounds, QueueId

_log = logging.getLogger("pyspark_rocketmq")

_FROM_OFFSET_0: Final = Bounds(0, 1)


class OpenWatch(Protocol):
    """Makes an end-offset watcher; brokers may hold its pulls for `hold_ms`."""

    def __call__(
        self, settings: ConnectionSettings, queues: tuple[QueueId, ...], *, hold_ms: int
    ) -> EndOffsetWatcher: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """The driver's access to network and clock; tests pass their own."""

    open_cluster: Callable[[ConnectionSettings], Cluster] = open_cluster
    open_watch: OpenWatch = EndOffsetWatcher
    now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    sleep_ms: Callable[[int], None] = lambda ms: time.sleep(ms / 1_000)


class OffsetDriver(ABC):
    """Plans micro-batches from the offsets that its subclass reports. See `StreamDriver`."""

    def __init__(self, options: ReadOptions, ports: Ports) -> None:
        self._options = options
        self._ports = ports
        self._settings = connection_settings(options.connection)
        self._cluster = ports.open_cluster(self._settings)
        self._admission = OffsetAdmission(
            options, self._cluster, now_ms=ports.now_ms, sleep_ms=ports.sleep_ms
        )
        self._watcher: EndOffsetWatcher | None = None
        self._ends: dict[QueueId, int] = {}
        self._identity = TopicIdentity()
        """What tells the queues that are read from those of a recreated topic."""
        self._identities: tuple[SourceOffset, Identities] | None = None
        """The identities of the last planned batch, which rarely change."""
        self._parsed = ParsedOffsets()
        self._reported: tuple[dict[QueueId, int], Offset] | None = None

    # --- Spark's calls --------------------------------------------------------------------------

    def latest_offset(
        self, start: Offset, *, is_durable: bool = True, is_unlimited: bool = False
    ) -> Offset:
        """See `StreamDriver`. Without Spark's word too, Spark asks only when `start` is done."""
        del is_durable
        try:
            parsed = self._parsed.parse(start)
            self._begin_call(parsed)
            end = self._plan(parsed, is_unlimited=is_unlimited)
            if end is None:
                if self._admission.available_now.is_frozen:
                    self._flush()
                return start
            self._note_planned(end)
            self._admission.note_batch()
            return self._parsed.write(end)
        finally:
            self._admission.note_answer()

    def partitions(
        self, start: Offset, end: Offset, *, is_logged: bool = False
    ) -> Sequence[RangePartition]:
        options = self._options
        with pause_garbage_collection():
            planned = self._parsed.parse(end)
            ranges = ranges_between(self._parsed.parse(start), planned)
            identities = self._identities_of(planned)
            if is_logged:
                ranges = drop_recreated_queues(
                    self._cluster,
                    ranges,
                    identities,
                    fail_on_data_loss=options.fail_on_data_loss,
                )
            tasks = divide(ranges, Split.of(options))
            return range_partitions(tasks, self._cluster.broker_addresses(), identities)

    def _identities_of(self, planned: SourceOffset) -> Identities:
        known = self._identities
        if known is None or not known[0].has_identity_of(planned):
            known = self._identities = planned, planned.identities()
        return known[1]

    def report_latest(self) -> Offset | None:
        if not self._ends:
            return None
        if self._reported is None or self._reported[0] is not self._ends:
            self._reported = (self._ends, {"version": 1, "offsets": nested(self._ends)})
        return self._reported[1]

    def close(self) -> None:
        """See `StreamDriver`."""
        if self._watcher is not None:
            self._watcher.close()
        self._cluster.close()

    def _watch(self, queues: tuple[QueueId, ...]) -> None:
        """Watch the end offsets of these queues and no others."""
        if self._watcher is None:
            hold_ms = self._options.pull.suspend_timeout_ms
            self._watcher = self._ports.open_watch(self._settings, queues, hold_ms=hold_ms)
        else:
            self._watcher.set_queues(queues)

    # --- what the subclasses say ----------------------------------------------------------------

    @abstractmethod
    def _begin_call(self, start: SourceOffset) -> None:
        """Begin the query if this is its first call; take `start` for durable."""

    @abstractmethod
    def _backlog(self, start: SourceOffset) -> Backlog:
        """Return what may be read behind `start`. Raises DataLossError."""

    def _must_record(self, start: SourceOffset, offsets: Mapping[QueueId, int]) -> bool:
        """True if the checkpoint must hold these offsets though no message is read."""
        del start, offsets
        return False

    def _release_unread(self, backlog: Backlog, end: SourceOffset | None) -> None:
        """Release queues that the planned batch does not read, if the driver may own others."""
        del backlog, end

    def _note_planned(self, end: SourceOffset) -> None:
        """Note the end of a batch before Spark gets it."""
        del end

    @abstractmethod
    def _flush(self) -> None:
        """Store the committed offsets now: this is the last call of a run with AvailableNow."""

    # --- planning -------------------------------------------------------------------------------

    def _plan(self, start: SourceOffset, *, is_unlimited: bool) -> SourceOffset | None:
        backlog = self._backlog(start)
        end = self._end_of(start, backlog, is_unlimited=is_unlimited)
        if end is None and self._watcher is not None and self._admission.is_idle:
            self._release_unread(backlog, None)
            self._admission.wait(self._watcher, backlog, is_unlimited=is_unlimited)
            backlog = self._backlog(start)
            end = self._end_of(start, backlog, is_unlimited=is_unlimited)
        if (
            end is None
            and self._watcher is not None
            and self._watcher.resolve_doubts(backlog.offsets)
        ):
            self._release_unread(backlog, None)
            backlog = self._backlog(start)
            end = self._end_of(start, backlog, is_unlimited=is_unlimited)
        self._release_unread(backlog, end)
        return end

    def _end_of(
        self, start: SourceOffset, backlog: Backlog, *, is_unlimited: bool
    ) -> SourceOffset | None:
        """Return the end of the next micro-batch as things are now; None: there is none yet."""
        taken = self._admission.take(backlog, is_unlimited=is_unlimited)
        if not taken and not self._must_record(start, backlog.offsets):
            return None
        self._note_first_store_times(backlog.offsets, taken)
        return advance(start, backlog.offsets, taken, *self._identity.written())

    def _note_first_store_times(
        self, offsets: Mapping[QueueId, int], taken: Mapping[QueueId, int]
    ) -> None:
        """Note, once, when offset 0 of a queue was stored that is read from there."""
        identity = self._identity
        new = [q for q in taken if offsets[q] == 0 and identity.first_store_time(q) is None]
        times = self._first_store_times(dict.fromkeys(new, _FROM_OFFSET_0))
        for queue, first_store_time in times.items():
            identity.note(queue, _FROM_OFFSET_0, first_store_time)

    def _first_store_times(self, bounds: Mapping[QueueId, Bounds]) -> Mapping[QueueId, int]:
        try:
            return find_first_store_times(self._cluster, bounds) if bounds else {}
        except RocketMQError as error:
            _log.warning("cannot find out when the first messages were stored: %s", error)
            return {}
