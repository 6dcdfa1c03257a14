"""Cursors: where a group's pops begin in each queue, and which queues one pop reads."""

from __future__ import annotations

import logging

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.pop.in_flight import GroupQueue, InFlightPops
from rocketmq_broker.engine.pop.orderly import ORDERS_FILE, OrderlyPops
from rocketmq_broker.engine.tables import Tables
from rocketmq_broker.storage.disk.config_files import CONSUMER_OFFSETS
from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import broker_error
from rocketmq_wire.model import PERMISSION_READ, RETRY_PREFIX, Bounds, QueueId, TopicConfig
from rocketmq_wire.records.handles import RetryKind
from rocketmq_wire.requests.pop import InitMode

_LOG = logging.getLogger(__name__)


class Cursors:
    """The queues of the store as popping groups see them, with their pops in flight."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._store = tables.store
        self._committed = tables.committed
        self.in_flight = InFlightPops()
        self._has_unsaved_start = False
        """True if a new group began at the newest message, which only memory knows."""
        self.orderly = OrderlyPops(tables.store.configs.load(ORDERS_FILE))
        self.retry_kind = RetryKind.V2 if tables.config.pop_retry_topic_v2 else RetryKind.V1
        """The naming of retry topics."""

    def bounds(self, queue: GroupQueue) -> Bounds:
        return self._store.bounds(queue.topic, queue.queue_index)

    def begin(self, queue: GroupQueue, init_mode: InitMode) -> tuple[int, int]:
        """The start of the next pop and the queue's end; corrects an offset out of bounds."""
        bounds = self.bounds(queue)
        if self._committed.take_reset(queue.group, queue.queue) is not None:
            self.in_flight.forget_chain(queue)
            self.orderly.forget(queue)
        committed = self.committed(queue)
        if committed is None:
            is_oldest = init_mode is InitMode.MIN or queue.topic.startswith(RETRY_PREFIX)
            # As in RocketMQ, a new group gets all of a young queue, else the newest message.
            is_oldest = is_oldest or bounds.start == 0
            committed = bounds.start if is_oldest else bounds.end - 1
            self._committed.commit(queue.group, queue.queue, committed)
            is_found_again = init_mode is InitMode.MIN or queue.topic.startswith(RETRY_PREFIX)
            self._has_unsaved_start |= not is_found_again
        start = self.in_flight.next_offset(queue, committed)
        if not bounds.start <= start <= bounds.end:
            # The messages expired, or the topic was recreated: its pops must not move the offset.
            self.in_flight.forget_chain(queue)
            before, start = start, bounds.start if start < bounds.start else bounds.end
            _LOG.warning(
                "topic=%s queue=%d group=%s: pops continue at %d: the queue has [%d,%d) and not %d",
                queue.topic,
                queue.queue_index,
                queue.group,
                start,
                bounds.start,
                bounds.end,
                before,
            )
            self.commit(queue, start)
        return start, bounds.end

    def save_starts(self) -> None:
        """Return once the disk has where new groups began: call it before they get messages.

        After a crash such a group would begin at the newest message of that time, and lose what it
        did not acknowledge before. Raises StorageError.
        """
        if self._has_unsaved_start:
            self._store.configs.save(CONSUMER_OFFSETS, self._committed.content())
            self._has_unsaved_start = False

    def peek_begin(self, queue: GroupQueue) -> int:
        """The start of the queue's next pop, without any change."""
        committed = self.committed(queue)
        if committed is None:
            committed = self.bounds(queue).start
        return self.in_flight.next_offset(queue, committed)

    def committed(self, queue: GroupQueue) -> int | None:
        """The group's committed offset; None if it has none in the queue."""
        return self._committed.get(queue.group, queue.queue)

    def commit(self, queue: GroupQueue, offset: int) -> None:
        """Move the group's committed offset, unless a reset just moved it elsewhere."""
        is_reset = self._committed.awaits_reset(queue.group, queue.queue)
        if not is_reset and self.committed(queue) != offset:
            self._committed.commit(queue.group, queue.queue, offset)

    def may_have_popped(self, queue: GroupQueue, offset: int, pop_ms: int) -> bool:
        """False if the message at the offset is younger than the pop: the pop got another one."""
        try:
            return self._store.store_time(queue.topic, queue.queue_index, offset) <= pop_ms
        except DamagedStoreError:
            return True  # The store time cannot be read.

    def queues_of(self, config: TopicConfig, queue: QueueId, group: str) -> list[GroupQueue]:
        """The queues that a pop reads, with those of the group's retry topics."""
        indices = range(config.read_queue_count) if queue.index < 0 else (queue.index,)
        queues = [GroupQueue(config.name, group, index) for index in indices]
        for kind in (RetryKind.V1, RetryKind.V2):
            retries = self._tables.topics.get(kind.topic_of(config.name, group))
            if retries is not None:
                count = retries.read_queue_count
                queues += [GroupQueue(retries.name, group, index) for index in range(count)]
        return queues

    def require_poppable(self, queue: QueueId, group: str) -> TopicConfig:
        """The topic of a queue that the group may pop from. Refusals: 16, 17, 26, 29."""
        config = self._tables.topics.require(queue.topic)
        if not config.permission & PERMISSION_READ:
            raise refusals.not_readable(queue.topic)
        if queue.index >= config.read_queue_count:
            raise refusals.queue_illegal(queue.index, queue.topic, config.read_queue_count)
        self._tables.groups.ensure(group)
        return config

    def require_message(self, queue: QueueId, offset: int, *, is_end_allowed: bool) -> None:
        """Refuse (13, 17, 208) an offset outside the queue."""
        count = self._tables.topics.require(queue.topic).read_queue_count
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
