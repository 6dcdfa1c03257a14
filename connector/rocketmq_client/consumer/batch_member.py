"""A member of a group whose queues are read by somebody else, in batches.

    take      the queues that may be read now and where each goes on; they are held
    settle    the batch is done: what was held is consumed up to there, and may go to another
    release   held, but nothing was read of it

A held queue is not given up: a member that rebalance wants to have it waits for the queue's lock at
the broker, which every seat has for each of its queues, as consumers in order do. So a queue goes
from seat to seat between two batches, with its progress stored, and nothing is read twice. When a
seat dies its locks expire after a minute, and what its last batch read is read again. Progress is
only ever moved forward: concurrent consumers know no locks, and may be further already.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping

from rocketmq_client.consumer.common.io_thread import now_ms
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.group_consumer import ConsumerState, GroupConsumer
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_client.consumer.membership.owned_queues import OwnedQueues
from rocketmq_client.consumer.pulling.queue_puller import NoPulls, OwnedQueue
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, broker_error
from rocketmq_wire.model import RETRY_PREFIX, QueueId, Subscription
from rocketmq_wire.plural import plural
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.members import ConsumeDirectly

_LOG = logging.getLogger(__name__)


class BatchMember(GroupConsumer):
    """`take`, `settle` and `release` are for one thread, and never wait for the network."""

    # As Java's push consumers, beside whom it sits: brokers note one type for a group.
    _consume_type = "CONSUME_PASSIVELY"

    def __init__(self, connection: ConnectionSettings, settings: ConsumerSettings) -> None:
        """Raises ValueError."""
        super().__init__(connection, settings, instance_name=None, unit_name=None)
        # The group's second attempts are this member's too: its share of their queue.
        self._subscriptions[RETRY_PREFIX + self.settings.group] = Subscription()
        self._taken: dict[QueueId, OwnedQueue] = {}
        self._doubtful: frozenset[QueueId] = frozenset()
        """Queues whose lock was lost for a while: another member may have got further."""
        self._changed = threading.Condition()
        self._is_balanced = False
        self._settled_count = self._stored_count = 0
        self._lock_due_ms = 0

    def start(self, known: Mapping[QueueId, int]) -> BatchMember:
        """Join the group; `known` is how far this member was before it was started again.

        Raises ClientStateError and BrokerError.
        """
        instance = self._acquire()
        self._sit(instance, known)
        self._register(instance)
        return self

    # --- for whoever reads --------------------------------------------------------------------

    def wait_for_queues(self, timeout_ms: int) -> bool:
        """Wait until queues were shared with this member among them; False if not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_balanced, timeout_ms / 1_000)

    def take(self) -> dict[QueueId, int]:
        """Hold every queue that may be read now; where each goes on. Held ones are left out.

        So are those that another member waits for.
        """
        places: dict[QueueId, int] = {}
        time_ms = now_ms()
        for queue, owned in self._queues.owned.items():
            if queue in self._taken or queue in self._doubtful or owned.is_leaving:
                continue
            if not owned.consume_lock.acquire(blocking=False):
                continue  # It is being given up.
            if owned.process.is_dropped or not owned.process.is_lock_valid(time_ms):
                owned.consume_lock.release()
                continue
            self._taken[queue] = owned
            places[queue] = owned.process.next_begin
        return places

    @property
    def taken(self) -> Collection[QueueId]:
        """What was taken, and neither settled nor released."""
        return self._taken.keys()

    def commit(self, ends: Mapping[QueueId, int]) -> None:
        """What is held is consumed up to these offsets. Stored soon; `flush` waits for that."""
        is_news, known = False, {}
        for queue in [queue for queue in self._taken if queue in ends]:
            owned = self._taken.pop(queue)
            if not owned.process.is_dropped:
                known[queue] = ends[queue]
            with owned.lock:
                is_news = is_news or owned.process.next_begin != ends[queue]
                owned.process.next_begin = max(owned.process.next_begin, ends[queue])
                owned.process.last_consume_ms = now_ms()
            owned.consume_lock.release()
        # Also for one who gains a queue back: what was settled is known to be consumed.
        self._store.known = {**self._store.known, **known}
        if is_news and self._instance is not None:
            with self._changed:
                self._settled_count += 1
            self._persist_due_ms = 0
            self._instance.nudge()

    def release(self, queues: Iterable[QueueId]) -> None:
        """Of these nothing was read."""
        for queue in tuple(queues):
            owned = self._taken.pop(queue, None)
            if owned is not None:
                owned.consume_lock.release()

    def seek(self, queue: QueueId, offset: int) -> None:
        """Go on elsewhere in a held queue: its place is gone."""
        owned = self._taken[queue]
        with owned.lock:
            owned.process.next_begin = offset

    def flush(self, timeout_ms: int) -> bool:
        """Wait until what was settled is stored; False when it is not in time."""
        with self._changed:
            count = self._settled_count
            return self._changed.wait_for(lambda: self._stored_count >= count, timeout_ms / 1_000)

    def close(self) -> None:
        """Store what was settled and leave the group. What is held comes again."""
        with self._rebalance_lock:
            instance, self._instance = self._instance, None
        if instance is None:
            return
        self._state = ConsumerState.SHUT_DOWN
        try:
            # A batch that is not settled ends with the query: nobody is at these queues.
            self.release(tuple(self._taken))
            with self._rebalance_lock:
                self._queues.lose_all()
            instance.unregister(self)
        finally:
            instance.release()

    # --- for its instance ---------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        """See `Member.topics`."""
        return tuple(self._subscriptions)

    def rebalance(self) -> None:
        """See `Member.rebalance`."""
        super().rebalance()
        if self._instance is not None and self._has_share():
            with self._changed:
                self._is_balanced = True
                self._changed.notify_all()

    def restart(self, offsets: Mapping[QueueId, int]) -> None:
        """See `Member.restart`."""
        self._store.known = {**self._store.known, **offsets}
        super().restart(offsets)

    def housekeep(self, now_ms: int) -> int:
        """See `Member.housekeep`."""
        with self._rebalance_lock:
            instance, settings = self._instance, self.settings
            if instance is None:
                return now_ms + settings.persist_ms
            if now_ms >= self._persist_due_ms:
                self._persist_due_ms = now_ms + settings.persist_ms
                self._persist()
            if now_ms >= self._lock_due_ms:
                self._lock_due_ms = now_ms + settings.lock_ms
                self._renew(now_ms)
            if self._doubtful:
                self._doubtful = frozenset(self._queues.lose(self._doubtful))
                instance.want_rebalance()
            if self._retry_due_ms and now_ms >= self._retry_due_ms:
                self._retry_due_ms = 0
                instance.want_rebalance()
            dues = [self._persist_due_ms, self._lock_due_ms]
            return min([*dues, self._retry_due_ms] if self._retry_due_ms else dues)

    def consume_directly(
        self, request: ConsumeDirectly, on_done: Callable[[Reply | BrokerError], None]
    ) -> None:
        """See `Member.consume_directly`."""
        del request
        on_done(
            broker_error(
                ResponseCode.SYSTEM_ERROR, "this member reads in batches: it has no listener"
            )
        )

    # --- inside -------------------------------------------------------------------------------

    def _sit(self, instance: ClientInstance, known: Mapping[QueueId, int]) -> None:
        self._puller = NoPulls(instance.io, self.settings)
        self._queues = OwnedQueues(
            instance, self.settings, self._puller, is_orderly=True, is_forward_only=True
        )
        self._store = self._queues.offset_store
        self._store.known = known
        self._persist_due_ms = now_ms() + self.settings.persist_ms
        self._lock_due_ms = now_ms() + self.settings.lock_ms

    def _has_share(self) -> bool:
        """Every wanted queue is had, or the group has more members than queues."""
        return self._state is ConsumerState.RUNNING and (
            bool(self._queues.owned) or not self._retry_due_ms
        )

    def _persist(self) -> None:
        count = self._settled_count
        if self._queues.persist():
            with self._changed:
                self._stored_count = count
                self._changed.notify_all()

    def _renew(self, time_ms: int) -> None:
        owned = self._queues.owned
        stale = {queue for queue, one in owned.items() if not one.process.is_lock_valid(time_ms)}
        self._queues.renew_locks()
        stale |= {queue for queue, one in owned.items() if not one.process.is_locked}
        if stale:
            queues = plural(len(stale), "queue")
            _LOG.warning("group=%s: %s had anew, whose locks lapsed", self.group, queues)
            self._doubtful |= stale
