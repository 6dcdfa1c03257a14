"""The next offsets of a stream: those of the checkpoint, of queues found, and corrected ones.

A queue keeps its offset while its broker is unavailable. It also keeps it, and is not read, while a
restarted query does not select it. A queue found later is read from its first message. If an offset
is gone, the stream raises the loss, or logs it and corrects the offset: the correction holds as
long as Spark passes the old offset. Messages that expired before a queue was found are a loss, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from pyspark_rocketmq.errors import raise_or_skip_loss
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.planning.selection import listed, selects
from pyspark_rocketmq.planning.topic_identity import TopicIdentity
from pyspark_rocketmq.read.cluster_scan import ClusterScan, scan_cluster
from rocketmq_client.cluster import Cluster
from rocketmq_client.loss import Loss, LossReason, judge_offset
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Bounds, QueueId
from rocketmq_wire.plural import plural

_log = logging.getLogger("pyspark_rocketmq")

# What looks like a loss is judged by a fresh scan, but not at every call.
_DOUBT_MS: Final = 1_000


class StreamOffsets:
    """The next offsets of one query, kept up to date by cluster scans."""

    def __init__(
        self,
        options: ReadOptions,
        now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._options = options
        self._now_ms = now_ms
        self.ends: dict[QueueId, int] = {}
        """The end offsets of the queues in the last scan."""
        self.identity = TopicIdentity()
        """What tells the queues that are read from those of a recreated topic."""
        self._found: dict[QueueId, int] = {}
        """The first offsets of queues that the checkpoint does not have yet."""
        self._corrections: dict[QueueId, tuple[int, int]] = {}
        """Old and new offsets, while Spark passes the start that has the old ones."""
        self._start: SourceOffset | None = None
        """The start that Spark passed last."""
        self._removed: set[QueueId] = set()
        self._lagging_since_ms: dict[QueueId, int] = {}
        """Since when only a replica answers for a queue, and lacks the next offset."""
        self._absent_since_ms: dict[str, int] = {}
        self._lost_topics: set[str] = set()
        self._is_in_doubt = False
        self._rescanned_ms = -_DOUBT_MS
        self._compare_at_ms = 0
        """When `compare` may scan again."""
        self._queues: tuple[QueueId, ...] = ()
        self._topics: tuple[str, ...] = ()
        self._new_scan: ClusterScan | None = None
        self._selects = selects(options)
        self._selected: tuple[SourceOffset | None, Mapping[QueueId, int]] = (None, {})

    def topics(self) -> tuple[str, ...]:
        return self._topics

    def asked_topics(self) -> tuple[str, ...]:
        """Return as few topics as name every broker: any one serves to ask a broker for a group."""
        chosen: dict[str, str] = {}
        for queue in self._queues:
            chosen.setdefault(queue.broker, queue.topic)
        return tuple(sorted(set(chosen.values())))

    def live_queues(self) -> tuple[QueueId, ...]:
        """Return the queues to watch: all but those that were removed."""
        return tuple(queue for queue in self._queues if queue not in self._removed)

    def begin(self, cluster: Cluster, start: SourceOffset, scan: ClusterScan) -> None:
        """Take the checkpoint's offsets and judge whether all of them still exist.

        Raises DataLossError.
        """
        self.identity = TopicIdentity(start.first_store_times, start.first_offsets)
        self._start = start
        self._judge_all(cluster, start, scan)
        self._note(start, scan)
        self._compare_at_ms = self._now_ms() + _DOUBT_MS
        left_out = start.offsets.keys() - self.selected(start).keys()
        if left_out:
            _log.warning(
                "%s of the checkpoint no longer selected, kept there and not read: %s",
                plural(len(left_out), "queue"),
                listed(sorted(left_out)),
            )

    def selected(self, start: SourceOffset) -> Mapping[QueueId, int]:
        if self._selected[0] is not start:
            kept = {queue: n for queue, n in start.offsets.items() if self._selects(queue)}
            whole = start.offsets if len(kept) == len(start.offsets) else kept
            self._selected = (start, whole)
        return self._selected[1]

    def note_scan(self, found: ClusterScan) -> None:
        """Note a new scan; the next call of Spark judges it."""
        self._new_scan = found

    def compare(self, cluster: Cluster, start: SourceOffset) -> None:
        """Judge all queues by a scan, in a run without discovery. Raises DataLossError.

        It scans at most once a second, and for a tenth of the time.
        """
        self._move_to(start)
        began_ms = self._now_ms()
        if began_ms >= self._compare_at_ms:
            self._rescan(cluster, start)
            now_ms = self._now_ms()
            self._compare_at_ms = now_ms + max(_DOUBT_MS, 10 * (now_ms - began_ms))

    def next_offsets(
        self, cluster: Cluster, start: SourceOffset, ends: Mapping[QueueId, int]
    ) -> Mapping[QueueId, int]:
        """Return the next offsets to read after `start`. Raises DataLossError."""
        self._move_to(start)
        scan, self._new_scan = self._new_scan, None
        if scan is not None:
            self._judge_missing(cluster, start, scan)
            if self._hints_at_loss(start, scan):
                self._is_in_doubt = True
            else:
                self._note(start, scan)
        if self._is_in_doubt or self._has_passed(start, ends):
            self._rescan(cluster, start)
        return self._corrected_offsets(start)

    def _move_to(self, start: SourceOffset) -> None:
        """Note the start of a call: a new one has the corrections, even if it has old numbers."""
        if start is not self._start and start != self._start:
            self._corrections.clear()
        self._start = start

    def _corrected_offsets(self, start: SourceOffset) -> Mapping[QueueId, int]:
        if not self._corrections and all(queue in start.offsets for queue in self._found):
            return start.offsets
        offsets = dict(start.offsets)
        offsets.update({queue: new for queue, (_, new) in self._corrections.items()})
        for queue, first in list(self._found.items()):
            if queue in offsets:
                del self._found[queue]
            else:
                offsets[queue] = first
        return offsets

    def _hints_at_loss(self, start: SourceOffset, scan: ClusterScan) -> bool:
        """True if a scan hints at a loss. It may be older than the offset, so it proves none."""
        return any(
            self._corrections.get(queue, (None, 0))[0] != offset
            and self._hints_at_loss_in(queue, offset, scan)
            for queue, offset in self.selected(start).items()
        )

    def _hints_at_loss_in(self, queue: QueueId, offset: int, scan: ClusterScan) -> bool:
        held = scan.bounds.get(queue)
        if held is None:
            return False  # `_judge_missing` judges missing queues.
        first_store_time, first = (
            self.identity.first_store_time(queue),
            self.identity.first_offset(queue),
        )
        is_recreated = (
            first_store_time is not None
            and scan.first_store_times.get(queue, first_store_time) != first_store_time
        )
        is_lower = first is not None and held.is_current and held.start < first
        return is_recreated or is_lower or held.start > offset

    def _has_passed(self, start: SourceOffset, ends: Mapping[QueueId, int]) -> bool:
        """True if a queue seems to end before its next offset."""
        return any(
            ends.get(queue, offset) < offset
            and queue not in self._removed
            and self._corrections.get(queue, (None, 0))[0] != offset
            for queue, offset in self.selected(start).items()
        )

    def _rescan(self, cluster: Cluster, start: SourceOffset) -> None:
        now_ms = self._now_ms()
        if now_ms - self._rescanned_ms < _DOUBT_MS:
            return
        self._rescanned_ms = now_ms
        try:
            fresh = scan_cluster(cluster, self._options, self._topics)
        except RocketMQError as error:
            _log.warning("cannot find out yet whether messages are lost: %s", error)
            return
        self._is_in_doubt = False
        self._judge_all(cluster, start, fresh)
        self._note(start, fresh)

    def _note(self, start: SourceOffset, scan: ClusterScan) -> None:
        found = {queue: held for queue, held in scan.bounds.items() if self._selects(queue)}
        known = {*self.selected(start), *filter(self._selects, scan.queues)}
        self._queues = tuple(sorted(known))
        self._topics = tuple(sorted({queue.topic for queue in known}))
        for queue, held in found.items():
            if queue not in start.offsets and queue not in self._found:
                first = self._first_of_found(queue, held)
                if first is None:
                    continue
                self._found[queue] = first
                _log.info("found %s, reading it from %d", queue, first)
            self.ends[queue] = held.end
            if self._next_offset(start, queue) == 0:
                self.identity.forget(queue)  # Nothing of it was read.
            self.identity.note(queue, held, scan.first_store_times.get(queue))

    def _first_of_found(self, queue: QueueId, held: Bounds) -> int | None:
        """Return where to read a found queue from; None: a replica does not know. May raise."""
        is_overdue = self._is_overdue(queue, 0, held)
        if held.start and not (held.is_current or is_overdue):
            return None
        loss = judge_offset(queue, 0, held, is_overdue=is_overdue)
        return 0 if loss is None else self._raise_or_skip(loss)

    def _next_offset(self, start: SourceOffset, queue: QueueId) -> int | None:
        offset = start.offsets.get(queue, self._found.get(queue))
        old, new = self._corrections.get(queue, (None, 0))
        return new if offset is not None and offset == old else offset

    def _judge_all(self, cluster: Cluster, start: SourceOffset, fresh: ClusterScan) -> None:
        for queue, offset in self.selected(start).items():
            held = fresh.bounds.get(queue)
            if held is None or self._corrections.get(queue, (None, 0))[0] == offset:
                continue
            loss = judge_offset(
                queue,
                offset,
                held,
                first_offset_seen=self.identity.first_offset(queue),
                first_store_time=self.identity.first_store_time(queue),
                first_store_time_now=fresh.first_store_times.get(queue),
                is_overdue=self._is_overdue(queue, offset, held),
            )
            if loss is not None:
                self._corrections[queue] = (offset, self._raise_or_skip(loss))
                if loss.reason is LossReason.TOPIC_RECREATED:
                    self.identity.forget(queue)
        self._judge_missing(cluster, start, fresh)

    def _is_overdue(self, queue: QueueId, offset: int, held: Bounds) -> bool:
        """True if a replica has lacked the offset for as long as an outage may last."""
        if held.is_current or held.start <= offset <= held.end:
            self._lagging_since_ms.pop(queue, None)
            return False
        now_ms = self._now_ms()
        if queue not in self._lagging_since_ms:
            _log.warning(
                "%s: only a replica answers, and it has [%d,%d), not %d: waiting for its master",
                queue,
                held.start,
                held.end,
                offset,
            )
        since_ms = self._lagging_since_ms.setdefault(queue, now_ms)
        return now_ms - since_ms >= self._options.connection.retry_outage_ms

    def _judge_missing(self, cluster: Cluster, start: SourceOffset, scan: ClusterScan) -> None:
        listed = set(scan.queues)
        now_ms = self._now_ms()
        for topic in list(self._absent_since_ms):
            if topic not in scan.absent_topics:
                del self._absent_since_ms[topic]
                self._lost_topics.discard(topic)
        offsets = self.selected(start)
        for topic in scan.absent_topics:
            since = self._absent_since_ms.setdefault(topic, now_ms)
            queues = [queue for queue in offsets if queue.topic == topic]
            is_overdue = now_ms - since >= self._options.connection.retry_outage_ms
            if (
                queues
                and topic not in self._lost_topics
                and (
                    is_overdue
                    or is_deleted(cluster, topic, frozenset(queue.broker for queue in queues))
                )
            ):
                self._lost_topics.add(topic)
                self._lose_topic(start, queues)
        for queue in offsets:
            if queue in listed:
                self._removed.discard(queue)
            elif queue not in self._removed and self._is_removed(queue, scan):
                self._removed.add(queue)
                self._lose_queue(cluster, start, queue)

    def _is_removed(self, queue: QueueId, scan: ClusterScan) -> bool:
        if self._options.assign is not None:
            return queue in scan.missing_queues and queue.topic not in scan.absent_topics
        return (queue.topic, queue.broker) in scan.brokers

    def _lose_topic(self, start: SourceOffset, queues: list[QueueId]) -> None:
        for queue in queues:
            offset = start.offsets[queue]
            gone = self.ends[queue] - offset if queue in self.ends else None
            self._raise_or_skip(Loss(LossReason.TOPIC_DELETED, queue, offset, None, None, gone))

    def _lose_queue(self, cluster: Cluster, start: SourceOffset, queue: QueueId) -> None:
        offset, known = start.offsets[queue], self.ends.get(queue)
        held = cluster.bounds((queue,)).get(queue)
        if isinstance(held, Bounds) and held.end >= offset and held.end > 0:
            known = max(held.end, known or 0)
        if known == offset:
            _log.warning("%s is no longer there; all of it was read", queue)
            return
        gone = None if known is None or known < offset else known - offset
        bounds = held if isinstance(held, Bounds) else None
        self._raise_or_skip(Loss(LossReason.QUEUE_REMOVED, queue, offset, None, bounds, gone))

    def _raise_or_skip(self, loss: Loss) -> int:
        return raise_or_skip_loss(loss, fail_on_data_loss=self._options.fail_on_data_loss)


def is_deleted(cluster: Cluster, topic: str, brokers: frozenset[str]) -> bool:
    """True if one of the topic's brokers is registered and the topic is not.

    The routes of a broker's topics disappear with the broker: that alone is no deletion.
    """
    try:
        registered = {broker.name for broker in cluster.cluster_info().brokers}
        # A broker that came back meanwhile has registered its topics again.
        return bool(brokers & registered) and topic not in cluster.topics()
    except RocketMQError as error:
        _log.warning("cannot find out whether topic %s was deleted: %s", topic, error)
        return False
