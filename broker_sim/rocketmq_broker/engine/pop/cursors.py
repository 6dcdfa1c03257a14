"""Where a group's pops begin in a queue, and which queues one pop looks at."""

from __future__ import annotations

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.topics import Topics
from rocketmq_broker.engine.groups.committed_offsets import Progress
from rocketmq_broker.engine.groups.consumer_groups import Groups
from rocketmq_broker.engine.pop.in_flight import GroupQueue, InFlightPops
from rocketmq_broker.engine.pop.orderly import Orders
from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.store import Store
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import broker_error
from rocketmq_wire.model import PERMISSION_READ, RETRY_PREFIX, Bounds, QueueId, TopicConfig
from rocketmq_wire.records.handles import RetryKind
from rocketmq_wire.requests.pop import InitMode


class Places:
    """The queues of the store as groups that pop see them."""

    def __init__(
        self,
        *,
        loans: InFlightPops,
        orders: Orders,
        store: Store,
        topics: Topics,
        groups: Groups,
        progress: Progress,
    ) -> None:
        self._loans, self._orders, self._store = loans, orders, store
        self._topics, self._groups, self._progress = topics, groups, progress

    def bounds(self, place: GroupQueue) -> Bounds:
        return self._store.bounds(place.topic, place.queue_index)

    def begin(self, place: GroupQueue, init_mode: InitMode) -> tuple[int, int]:
        """The queue's next pop, and its end; a place that is not in the queue is corrected."""
        queue = QueueId(place.topic, "", place.queue_index)
        bounds = self.bounds(place)
        moved = self._progress.take_reset(place.group, queue)
        if moved is not None:
            self._loans.forget_chain(place)
            self._orders.forget(place)
        progress = self._progress.get(place.group, queue)
        if progress is None:
            is_oldest = init_mode is InitMode.MIN or place.topic.startswith(RETRY_PREFIX)
            # As RocketMQ: a new group gets all of a young queue, else the newest message.
            is_oldest = is_oldest or bounds.start == 0
            progress = bounds.start if is_oldest else bounds.end - 1
            self._progress.commit(place.group, queue, progress)
        start = self._loans.next_offset(place, progress)
        if not bounds.start <= start <= bounds.end:
            # Expired, or of a queue that is another one now: loans of it lead nowhere either.
            self._loans.forget_chain(place)
            start = bounds.start if start < bounds.start else bounds.end
            self.commit(place, start)
        return start, bounds.end

    def peek_begin(self, place: GroupQueue) -> int:
        """Where the queue's next pop begins, without any change."""
        queue = QueueId(place.topic, "", place.queue_index)
        progress = self._progress.get(place.group, queue)
        if progress is None:
            progress = self.bounds(place).start
        return self._loans.next_offset(place, progress)

    def progress(self, place: GroupQueue) -> int | None:
        """How far the group is; None if it never was in the queue."""
        return self._progress.get(place.group, QueueId(place.topic, "", place.queue_index))

    def commit(self, place: GroupQueue, offset: int) -> None:
        """Move the group's progress, unless somebody just moved it elsewhere."""
        queue = QueueId(place.topic, "", place.queue_index)
        is_moved = self._progress.awaits_reset(place.group, queue)
        if not is_moved and self._progress.get(place.group, queue) != offset:
            self._progress.commit(place.group, queue, offset)

    def may_have_lent(self, place: GroupQueue, offset: int, pop_ms: int) -> bool:
        """False if the message at an offset was stored after a pop: it gave another one."""
        try:
            return self._store.store_time(place.topic, place.queue_index, offset) <= pop_ms
        except DamagedStoreError:
            return True  # Nobody can tell any more.

    def all_of(self, config: TopicConfig, queue: QueueId, group: str) -> list[GroupQueue]:
        """The queues that a pop would look at."""
        indices = range(config.read_queue_count) if queue.index < 0 else (queue.index,)
        places = [GroupQueue(config.name, group, index) for index in indices]
        for kind in (RetryKind.V1, RetryKind.V2):
            retries = self._topics.get(kind.topic_of(config.name, group))
            if retries is not None:
                count = retries.read_queue_count
                places += [GroupQueue(retries.name, group, index) for index in range(count)]
        return places

    def require_poppable(self, queue: QueueId, group: str) -> TopicConfig:
        """The topic of a queue that the group may pop from, else 16, 17, 26 or 29."""
        config = self._topics.require(queue.topic)
        if not config.permission & PERMISSION_READ:
            raise refusals.not_readable(queue.topic)
        if queue.index >= config.read_queue_count:
            raise refusals.queue_illegal(queue, config.read_queue_count)
        self._groups.ensure(group)
        return config

    def require_held(self, queue: QueueId, offset: int, *, is_end_allowed: bool) -> None:
        """Refuse what names no message: 13, 17, 208."""
        count = self._topics.require(queue.topic).read_queue_count
        if not 0 <= queue.index < count:
            raise refusals.message_illegal(
                f"queueId[{queue.index}] is illegal, topic:[{queue.topic}] has {count} queues"
            )
        bounds = self._store.bounds(queue.topic, queue.index)
        if not bounds.start <= offset < bounds.end + is_end_allowed:
            raise broker_error(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal: {offset}, store: {bounds.start}~{bounds.end}",
            )
