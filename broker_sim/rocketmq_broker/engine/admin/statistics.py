"""Questions about queues: bounds, times, and how far groups lag behind.

Queues that do not exist read as empty, as in RocketMQ: only the two statistics know the topic.
"""

from __future__ import annotations

from rocketmq_broker.engine.core.topics import Topics
from rocketmq_broker.engine.groups.clients import Clients
from rocketmq_broker.engine.groups.committed_offsets import Progress
from rocketmq_broker.storage.store import Store
from rocketmq_wire.model import Bounds, CommittedOffset, QueueId, QueueStats
from rocketmq_wire.requests.offsets import SearchOffset

NO_TIME = -1


class Statistics:
    """What can be learned of the store without reading messages."""

    def __init__(
        self,
        broker_name: str,
        *,
        store: Store,
        topics: Topics,
        progress: Progress,
        clients: Clients,
    ) -> None:
        self._broker_name, self._store = broker_name, store
        self._topics, self._progress, self._clients = topics, progress, clients

    def bounds(self, queue: QueueId) -> Bounds:
        return self._store.bounds(queue.topic, queue.index)

    def search(self, request: SearchOffset) -> int:
        """The offset of the first message at or after a time (LOWER), or the last at or before."""
        queue = request.queue
        if self.bounds(queue).end == 0:
            return 0
        return self._store.search_time(
            queue.topic, queue.index, request.timestamp_ms, request.boundary
        )

    def earliest_time(self, queue: QueueId) -> int:
        bounds = self.bounds(queue)
        return self._time_at(queue, bounds.start, NO_TIME) if bounds.start < bounds.end else NO_TIME

    def topic_stats(self, topic: str) -> dict[QueueId, QueueStats]:
        """Every queue's bounds and the time of its newest message (0 when empty)."""
        config = self._topics.require(topic)
        count = max(config.read_queue_count, config.write_queue_count)
        stats = {}
        for index in range(count):
            queue = QueueId(topic, self._broker_name, index)
            bounds = self.bounds(queue)
            newest_ms = self._time_at(queue, bounds.end - 1, 0) if bounds.end > bounds.start else 0
            stats[queue] = QueueStats(bounds.start, bounds.end, newest_ms)
        return stats

    def consume_stats(self, group: str, topic: str | None) -> dict[QueueId, CommittedOffset]:
        """The group's place in every queue of the topics it has progress in."""
        stats = {}
        wanted = self._clients.subscriptions(group)
        for name in self._progress.topics(group) if not topic else (topic,):
            # What the members online do not consume any more is left out, as in RocketMQ.
            if wanted and name not in wanted:
                continue
            config = self._topics.get(name)
            for index in range(config.read_queue_count if config else 0):
                queue = QueueId(name, self._broker_name, index)
                bounds = self.bounds(queue)
                offset = self._progress.get(group, queue) or 0
                is_there = bounds.start < offset <= bounds.end
                updated_ms = self._time_at(queue, offset - 1, 0) if is_there else 0
                pulled = max(offset, self._progress.pulled(group, queue))
                stats[queue] = CommittedOffset(bounds.end, offset, updated_ms, pulled)
        return stats

    def _time_at(self, queue: QueueId, offset: int, absent: int) -> int:
        time_ms = self._store.store_time(queue.topic, queue.index, offset)
        return absent if time_ms is None or time_ms < 0 else time_ms
