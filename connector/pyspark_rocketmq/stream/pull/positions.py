"""Where a stream stands in every queue: the checkpoint's offsets, queues found, places corrected.

A queue keeps its place while its broker is merely missing, and while a restarted query no longer
selects it: then it is not read either. A queue found later is read from its
first message. When a place is gone the loss is raised, or logged and the place corrected: the
correction holds for as long as Spark hands in the old place.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from pyspark_rocketmq.errors import raise_or_skip_loss
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.planning.selection import selects
from pyspark_rocketmq.planning.topic_identity import TopicIdentity
from pyspark_rocketmq.read.cluster_scan import ClusterScan, scan_cluster
from rocketmq_client.cluster import Cluster
from rocketmq_client.loss import Loss, LossReason, judge_offset
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Bounds, QueueId
from rocketmq_wire.plural import plural

_log = logging.getLogger("pyspark_rocketmq")

# What looks like a loss is looked at again with fresh eyes, but not at every call.
_DOUBT_MS: Final = 1_000


class StreamOffsets:
    """The places of one query, kept up to date by surveys."""

    def __init__(
        self,
        options: ReadOptions,
        now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._options, self._now_ms = options, now_ms
        self.ends: dict[QueueId, int] = {}
        """How far queues reached when last surveyed."""
        self.identity = TopicIdentity()
        """By which a topic that was created anew is told from the one that was read."""
        self._found: dict[QueueId, int] = {}
        self._moved: dict[QueueId, tuple[int, int]] = {}
        self._removed: set[QueueId] = set()
        self._lagging_since_ms: dict[QueueId, int] = {}
        """Since when only a replica is there that does not hold the place in a queue."""
        self._absent_since_ms: dict[str, int] = {}
        self._lost_topics: set[str] = set()
        self._is_in_doubt = False
        self._looked_ms = -_DOUBT_MS
        self._queues: tuple[QueueId, ...] = ()
        self._topics: tuple[str, ...] = ()
        self._news: ClusterScan | None = None
        self._selects = selects(options)
        self._selected: tuple[SourceOffset | None, Mapping[QueueId, int]] = (None, {})

    def topics(self) -> tuple[str, ...]:
        """Every topic that is read or was."""
        return self._topics

    def asked_topics(self) -> tuple[str, ...]:
        """As few topics as name every broker: any one will do to ask a broker about a group."""
        chosen: dict[str, str] = {}
        for queue in self._queues:
            chosen.setdefault(queue.broker, queue.topic)
        return tuple(sorted(set(chosen.values())))

    def live_queues(self) -> tuple[QueueId, ...]:
        """The queues whose arrivals matter: those that exist, and those whose broker is missing."""
        return tuple(queue for queue in self._queues if queue not in self._removed)

    def begin(self, cluster: Cluster, start: SourceOffset, survey: ClusterScan) -> None:
        """Take the checkpoint's place and look whether all of it is still there.

        Raises DataLossError.
        """
        self.identity = TopicIdentity(start.first_store_times, start.first_offsets)
        self._judge_all(cluster, start, survey)
        self._note(start, survey)
        left_out = start.offsets.keys() - self.selected(start).keys()
        if left_out:
            _log.warning(
                "%s of the checkpoint no longer selected, kept in place and not read: %s",
                plural(len(left_out), "queue"),
                "; ".join(map(str, sorted(left_out)[:3])),
            )

    def selected(self, start: SourceOffset) -> Mapping[QueueId, int]:
        """The offsets of the queues that are read: the checkpoint may hold more."""
        if self._selected[0] is not start:
            kept = {queue: n for queue, n in start.offsets.items() if self._selects(queue)}
            whole = start.offsets if len(kept) == len(start.offsets) else kept
            self._selected = (start, whole)
        return self._selected[1]

    def survey(self, found: ClusterScan) -> None:
        """Take note of a new survey; it is judged when Spark asks next."""
        self._news = found

    def of(
        self, cluster: Cluster, start: SourceOffset, ends: Mapping[QueueId, int]
    ) -> Mapping[QueueId, int]:
        """Where reading goes on after `start`. Raises DataLossError."""
        news, self._news = self._news, None
        if news is not None:
            self._judge_missing(cluster, start, news)
            if self._is_odd(start, news):
                self._is_in_doubt = True
            else:
                self._note(start, news)
        if self._is_in_doubt or self._has_passed(start, ends):
            self._look_again(cluster, start)
        return self._going_on(start)

    def _going_on(self, start: SourceOffset) -> Mapping[QueueId, int]:
        if not self._moved and all(queue in start.offsets for queue in self._found):
            return start.offsets
        offsets = dict(start.offsets)
        for queue, (old, new) in list(self._moved.items()):
            if offsets.get(queue) == old:
                offsets[queue] = new
            else:
                del self._moved[queue]
        for queue, first in list(self._found.items()):
            if queue in offsets:
                del self._found[queue]
            else:
                offsets[queue] = first
        return offsets

    # --- judging --------------------------------------------------------------------------------

    def _is_odd(self, start: SourceOffset, news: ClusterScan) -> bool:
        """True when a survey hints at a loss. It may be older than the place: that proves none."""
        return any(
            self._moved.get(queue, (None, 0))[0] != offset
            and self._is_odd_queue(queue, offset, news)
            for queue, offset in self.selected(start).items()
        )

    def _is_odd_queue(self, queue: QueueId, offset: int, news: ClusterScan) -> bool:
        held = news.bounds.get(queue)
        if held is None:
            return False  # Missing, which is judged apart.
        first_store_time, first = (
            self.identity.first_store_time(queue),
            self.identity.first_offset(queue),
        )
        is_reborn = (
            first_store_time is not None
            and news.first_store_times.get(queue, first_store_time) != first_store_time
        )
        is_lower = first is not None and held.is_current and held.start < first
        return is_reborn or is_lower or held.start > offset

    def _has_passed(self, start: SourceOffset, ends: Mapping[QueueId, int]) -> bool:
        """True when a queue seems to end before the place in it."""
        return any(
            ends.get(queue, offset) < offset
            and queue not in self._removed
            and self._moved.get(queue, (None, 0))[0] != offset
            for queue, offset in self.selected(start).items()
        )

    def _look_again(self, cluster: Cluster, start: SourceOffset) -> None:
        now_ms = self._now_ms()
        if now_ms - self._looked_ms < _DOUBT_MS:
            return
        self._looked_ms = now_ms
        try:
            fresh = scan_cluster(cluster, self._options, self._topics)
        except RocketMQError as error:
            _log.warning("cannot tell yet whether messages are lost: %s", error)
            return
        self._is_in_doubt = False
        self._judge_all(cluster, start, fresh)
        self._note(start, fresh)

    def _note(self, start: SourceOffset, survey: ClusterScan) -> None:
        found = {queue: held for queue, held in survey.bounds.items() if self._selects(queue)}
        known = {*self.selected(start), *filter(self._selects, survey.queues)}
        self._queues = tuple(sorted(known))
        self._topics = tuple(sorted({queue.topic for queue in known}))
        for queue, held in found.items():
            self.ends[queue] = held.end
            if queue not in start.offsets and queue not in self._found:
                self._found[queue] = held.start
                _log.info("found %s, reading it from %d", queue, held.start)
            if self._place(start, queue) == 0:
                self.identity.forget(queue)  # Nothing of it was read.
            self.identity.note(queue, held, survey.first_store_times.get(queue))

    def _place(self, start: SourceOffset, queue: QueueId) -> int | None:
        offset = start.offsets.get(queue, self._found.get(queue))
        moved = self._moved.get(queue)
        return offset if moved is None or moved[0] != offset else moved[1]

    def _judge_all(self, cluster: Cluster, start: SourceOffset, fresh: ClusterScan) -> None:
        for queue, offset in self.selected(start).items():
            held = fresh.bounds.get(queue)
            if held is None or self._moved.get(queue, (None, 0))[0] == offset:
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
                self._moved[queue] = (offset, self._raise_or_skip(loss))
                if loss.reason is LossReason.TOPIC_RECREATED:
                    self.identity.forget(queue)
        self._judge_missing(cluster, start, fresh)

    def _is_overdue(self, queue: QueueId, offset: int, held: Bounds) -> bool:
        """True when a replica has lacked the place for as long as the master may be away."""
        if held.is_current or held.start <= offset <= held.end:
            self._lagging_since_ms.pop(queue, None)
            return False
        now_ms = self._now_ms()
        if queue not in self._lagging_since_ms:
            _log.warning(
                "%s: only a replica is there, and it holds [%d,%d), not %d: waiting for its master",
                queue,
                held.start,
                held.end,
                offset,
            )
        since_ms = self._lagging_since_ms.setdefault(queue, now_ms)
        return now_ms - since_ms >= self._options.connection.retry_outage_ms

    def _judge_missing(self, cluster: Cluster, start: SourceOffset, survey: ClusterScan) -> None:
        listed = set(survey.queues)
        now_ms = self._now_ms()
        for topic in list(self._absent_since_ms):
            if topic not in survey.absent_topics:
                del self._absent_since_ms[topic]
                self._lost_topics.discard(topic)
        offsets = self.selected(start)
        for topic in survey.absent_topics:
            since = self._absent_since_ms.setdefault(topic, now_ms)
            mine = [queue for queue in offsets if queue.topic == topic]
            is_overdue = now_ms - since >= self._options.connection.retry_outage_ms
            if (
                mine
                and topic not in self._lost_topics
                and (
                    is_overdue
                    or is_deleted(cluster, topic, frozenset(queue.broker for queue in mine))
                )
            ):
                self._lost_topics.add(topic)
                self._lose_topic(start, mine)
        for queue in offsets:
            if queue in listed:
                self._removed.discard(queue)
            elif queue not in self._removed and self._is_removed(queue, survey):
                self._removed.add(queue)
                self._lose_queue(cluster, start, queue)

    def _is_removed(self, queue: QueueId, survey: ClusterScan) -> bool:
        if self._options.assign is not None:
            return queue in survey.missing_queues and queue.topic not in survey.absent_topics
        return (queue.topic, queue.broker) in survey.brokers

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
    """True when one of the topic's brokers is there and the topic is not.

    A broker that is away takes its topics' routes with it: that alone is no deletion.
    """
    try:
        registered = {broker.name for broker in cluster.cluster_info().brokers}
        # A broker that came back since the topic was missed has brought it along.
        return bool(brokers & registered) and topic not in cluster.topics()
    except RocketMQError as error:
        _log.warning("cannot tell whether topic %s was deleted: %s", topic, error)
        return False
