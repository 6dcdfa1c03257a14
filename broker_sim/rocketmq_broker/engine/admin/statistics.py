"""Statistics of queues: bounds, times of messages, and the lag of groups.

As in RocketMQ, a queue that does not exist reads as empty; only `topic_stats` requires the topic.
"""

from __future__ import annotations

from rocketmq_broker.engine.core.activity import Activity
from rocketmq_broker.engine.tables import Tables
from rocketmq_wire.model import Bounds, CommittedOffset, QueueId, QueueStats
from rocketmq_wire.requests.offsets import ConsumeStatsReply, SearchOffset
from rocketmq_wire.requests.topics import GetTopicStats, TopicStatsReply

NO_TIME = -1


class Statistics:
    """Answers from the queues' indexes, without reading messages."""

    def __init__(self, tables: Tables, activity: Activity) -> None:
        self._tables = tables
        self._activity = activity
        self._broker_name = tables.identity.broker_name

    def bounds(self, queue: QueueId) -> Bounds:
        return self._tables.store.bounds(queue.topic, queue.index)

    def search(self, request: SearchOffset) -> int:
        """The offset of the first message at or after a time (LOWER), or the last at or before."""
        queue = request.queue
        if self.bounds(queue).end == 0:
            return 0
        return self._tables.store.search_time(
            queue.topic, queue.index, request.timestamp_ms, request.boundary
        )

    def earliest_time(self, queue: QueueId) -> int:
        bounds = self.bounds(queue)
        return self._time_at(queue, bounds.start, NO_TIME) if bounds.start < bounds.end else NO_TIME

    def topic_stats(self, request: GetTopicStats) -> TopicStatsReply:
        """Every queue's bounds and the time of its newest message (0 when empty)."""
        config = self._tables.topics.require(request.topic)
        count = max(config.read_queue_count, config.write_queue_count)
        stats = {}
        for index in range(count):
            queue = QueueId(config.name, self._broker_name, index)
            bounds = self.bounds(queue)
            newest_ms = self._time_at(queue, bounds.end - 1, 0) if bounds.end > bounds.start else 0
            stats[queue] = QueueStats(bounds.start, bounds.end, newest_ms)
        return TopicStatsReply(stats)

    def consume_stats(self, group: str, topic: str | None, now_ms: int) -> ConsumeStatsReply:
        """The group's committed offset in every queue of one topic, or of all its topics."""
        rate = 0.0
        topics, committed = self._tables.topics, self._tables.committed
        stats = {}
        wanted = self._tables.clients.subscriptions(group)
        for name in committed.topics(group) if not topic else (topic,):
            # As in RocketMQ, without the topics that the members online no longer subscribe to.
            if wanted and name not in wanted:
                continue
            rate += self._activity.group_rate(group, name, now_ms)
            config = topics.get(name)
            for index in range(config.read_queue_count if config else 0):
                queue = QueueId(name, self._broker_name, index)
                bounds = self.bounds(queue)
                offset = committed.get(group, queue) or 0
                is_there = bounds.start < offset <= bounds.end
                updated_ms = self._time_at(queue, offset - 1, 0) if is_there else 0
                pulled = max(offset, committed.pulled(group, queue))
                stats[queue] = CommittedOffset(bounds.end, offset, updated_ms, pulled)
        return ConsumeStatsReply(stats, rate)

    def _time_at(self, queue: QueueId, offset: int, absent: int) -> int:
        time_ms = self._tables.store.store_time(queue.topic, queue.index, offset)
        return absent if time_ms is None or time_ms < 0 else time_ms
