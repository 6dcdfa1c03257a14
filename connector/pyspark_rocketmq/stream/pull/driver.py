"""The driver of a stream that reads all selected queues by offset.

The end-offset watcher, the discovery and the offset commits run in threads. A call from Spark takes
what those know and returns. The driver asks brokers in such a call only when a query starts, while
an offset is in doubt (at most once a second), for the first store time of a queue that is read from
offset 0, and for samples of message sizes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from pyspark_rocketmq.consumer_group.commit import OffsetCommitter
from pyspark_rocketmq.errors import DiscoveryDiedError
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.read.cluster_scan import (
    ClusterScan,
    first_scan,
    require_selected,
    scan_cluster,
)
from pyspark_rocketmq.read.offset_search import find_starting_offsets
from pyspark_rocketmq.stream.admission import Backlog
from pyspark_rocketmq.stream.driver import Offset
from pyspark_rocketmq.stream.offset_driver import OffsetDriver, Ports
from pyspark_rocketmq.stream.pull.positions import StreamOffsets
from rocketmq_client.cluster import Cluster
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId
from rocketmq_wire.plural import plural

_log = logging.getLogger("pyspark_rocketmq")

_FLUSH_MS: Final = 3_000


class Discovery:
    """Scans the cluster every `discoveryIntervalMs`, on a connection of its own."""

    def __init__(
        self,
        open: Callable[[], Cluster],
        options: ReadOptions,
        topics: Callable[[], tuple[str, ...]],
    ) -> None:
        self._open = open
        self._options = options
        self._topics = topics
        self._interval_s = options.discovery_interval_ms / 1_000
        self._stop = threading.Event()
        self._latest: ClusterScan | None = None
        self._is_failing = False
        self._failure: Exception | None = None
        """The error that ended the thread."""
        self._thread = threading.Thread(target=self._run, name="rocketmq-discovery", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self) -> ClusterScan | None:
        """Return the newest scan not taken yet. Raises DiscoveryDiedError if the thread failed."""
        if self._failure is not None:
            raise DiscoveryDiedError(repr(self._failure)) from self._failure
        found, self._latest = self._latest, None
        return found

    def close(self, timeout_ms: int = 500) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_ms / 1_000)

    def _run(self) -> None:
        try:
            cluster = self._open()
            try:
                while not self._stop.wait(self._interval_s):
                    self._scan(cluster)
            finally:
                cluster.close()
        except Exception as error:  # noqa: BLE001 - the thread's outermost frame.
            # A query that cannot find new queues and losses must not seem healthy.
            self._failure = error

    def _scan(self, cluster: Cluster) -> None:
        try:
            self._latest = scan_cluster(cluster, self._options, self._topics())
            self._is_failing = False
        except RocketMQError as error:
            # The query still reads the known queues; one line for an outage is enough.
            if not self._is_failing:
                _log.warning("cannot look for new queues and topics now: %s", error)
            self._is_failing = True


class PullDriver(OffsetDriver):
    """Plans one query's micro-batches; answers `StreamDriver`."""

    def __init__(self, options: ReadOptions, ports: Ports | None = None) -> None:
        super().__init__(options, ports or Ports())
        self._offsets = StreamOffsets(options, self._ports.now_ms)
        self._first: ClusterScan | None = None
        self._initial: Offset | None = None
        self._has_begun = False
        self._discovery: Discovery | None = None
        self._committer: OffsetCommitter | None = None
        self._silent: frozenset[str] = frozenset()
        """The brokers that do not answer the end-offset watcher."""

    # --- Spark's calls --------------------------------------------------------------------------

    def initial_offset(self) -> Offset:
        if self._initial is None:
            scan = self._scan((), is_whole=True)
            require_selected(scan, self._options, self._cluster)
            found = find_starting_offsets(self._options, self._cluster, scan.bounds, "latest")
            self._initial = SourceOffset.initial(found.offsets, scan.first_store_times).to_json()
        return self._initial

    def prepare_available_now(self) -> None:
        scan = self._scan((), is_whole=False)
        if scan.unreachable:
            _log.warning(
                "%s out of reach, left to a later run: %s",
                plural(len(scan.unreachable), "queue"),
                next(iter(scan.unreachable.values())),
            )
        self._admission.available_now.freeze(
            {queue: held.end for queue, held in scan.bounds.items()}
        )

    def confirm(self, end: Offset) -> None:
        if self._options.consumer.commit_offsets == "confirmed":
            self._offer(self._parsed.parse(end))

    def close(self) -> None:
        if self._committer is not None:
            self._committer.close()
        if self._discovery is not None:
            self._discovery.close()
        super().close()

    # --- a call of Spark ------------------------------------------------------------------------

    def _begin_call(self, start: SourceOffset) -> None:
        if not self._has_begun:
            self._begin(start)
        if not start.is_initial and self._options.consumer.commit_offsets == "true":
            self._offer(start)
        found = self._discovery.take() if self._discovery is not None else None
        if found is not None and self._watcher is not None:
            self._offsets.note_scan(found)
            self._watch(self._offsets.live_queues())

    def _begin(self, start: SourceOffset) -> None:
        topics = tuple(sorted({queue.topic for queue in start.offsets}))
        self._offsets.begin(self._cluster, start, self._scan(topics, is_whole=False))
        self._identity = self._offsets.identity
        group = self._options.consumer.group
        if group is not None and self._options.consumer.commit_offsets != "false":
            committer = OffsetCommitter(self._open, group, self._offsets.asked_topics)
            committer.claim(self._cluster)
            self._committer = committer
        if not self._admission.available_now.is_frozen:
            self._watch(self._offsets.live_queues())
            self._discovery = Discovery(self._open, self._options, self._offsets.topics)
            self._discovery.start()
        self._has_begun = True

    def _open(self) -> Cluster:
        return self._ports.open_cluster(self._settings)

    def _scan(self, also: tuple[str, ...], *, is_whole: bool) -> ClusterScan:
        """Scan the cluster; one scan serves every call that begins a query."""
        first = self._first
        if first is None or (is_whole and first.unreachable) or set(also) - first.topics:
            first = first_scan(self._cluster, self._options, also, is_whole=is_whole)
            self._first = first
        return first

    def _offer(self, durable: SourceOffset) -> None:
        if self._committer is not None:
            self._committer.offer(self._offsets.selected(durable))

    def _note_planned(self, end: SourceOffset) -> None:
        if self._committer is not None:
            self._committer.planned(end.offsets)

    def _flush(self) -> None:
        if self._committer is not None:
            self._committer.flush(_FLUSH_MS)

    # --- what may be read -----------------------------------------------------------------------

    def _backlog(self, start: SourceOffset) -> Backlog:
        self._refresh_ends()
        available_now = self._admission.available_now
        if available_now.is_frozen:
            self._offsets.compare(self._cluster, start)
        offsets = self._offsets.next_offsets(self._cluster, start, self._ends)
        if available_now.is_frozen and offsets is not start.offsets:
            for queue, offset in offsets.items():
                if offset < start.offsets.get(queue, 0):
                    available_now.freeze_again(queue, self._offsets.ends[queue])
        if len(offsets) > len(start.offsets):
            self._refresh_ends()  # A scan found a queue, and its end.
        return self._admission.backlog(offsets, self._ends)

    def _must_record(self, start: SourceOffset, offsets: Mapping[QueueId, int]) -> bool:
        # A queue found or an offset corrected goes into the checkpoint though nothing is read.
        return offsets is not start.offsets and dict(offsets) != dict(start.offsets)

    def _refresh_ends(self) -> None:
        ends = dict(self._offsets.ends)
        if self._watcher is not None:
            ends.update(self._watcher.ends())
            self._report_silence(self._watcher.errors())
        if ends != self._ends:
            self._ends = ends

    def _report_silence(self, errors: Mapping[QueueId, RocketMQError]) -> None:
        """Log once for each broker that it stopped answering, and that it answers again."""
        reasons = {queue.broker: error for queue, error in errors.items()}
        for broker in sorted(reasons.keys() - self._silent):
            _log.warning(
                "%s does not answer. Its queues wait until it does, the others are "
                "read; a task that reads from it waits for up to %.0f s (retry.outageMs): %s",
                broker,
                self._options.connection.retry_outage_ms / 1_000,
                reasons[broker],
            )
        for broker in sorted(self._silent - reasons.keys()):
            _log.warning("%s answers again", broker)
        self._silent = frozenset(reasons)
