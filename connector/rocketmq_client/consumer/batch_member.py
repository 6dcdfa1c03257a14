"""A group member whose queues are read in batches by its caller, for Spark's `joinGroup`.

    take      the queues of the next batch, and the offset where each continues
    commit    the batch is read up to these offsets; its queues may go to another member
    release   nothing was read from these queues

A taken queue is not given up: the member that rebalance chose waits for the queue's lock at the
broker. Every batch member locks its queues, as consumers in order do. So a queue changes its owner
between two batches, after its offset was committed, and nothing is read twice. If a member dies,
its locks expire after a minute, and the next owner reads its last batch again. Committed offsets
only move forward: concurrent consumers take no locks, and may have committed a larger offset.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping

from rocketmq_client.consumer.common.io_thread import now_ms
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.group_consumer import ConsumerState, GroupConsumer
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_client.consumer.membership.owned_queues import OwnedQueues
from rocketmq_client.consumer.pulling.queue_puller import NoPulls, OwnedQueue
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import RETRY_PREFIX, QueueId, Subscription
from rocketmq_wire.plural import plural

_LOG = logging.getLogger(__name__)


class BatchMember(GroupConsumer):
    """One thread calls `take`, `commit` and `release`; they never wait for the network."""

    # As Java's push consumers in the same group: brokers keep one type for a group.
    _consume_type = "CONSUME_PASSIVELY"

    def __init__(
        self,
        connection: ConnectionSettings,
        settings: ConsumerSettings,
        known: Mapping[QueueId, int],
    ) -> None:
        """`known` are the offsets that this member read to before a restart. Raises ValueError."""
        super().__init__(connection, settings)
        self._known = known
        # The group's retry topic is shared like its other topics.
        retries = {RETRY_PREFIX + self.settings.group: Subscription()}
        self._subscribe_to({**self._subscriptions, **retries})
        self._taken: dict[QueueId, OwnedQueue] = {}
        self._doubtful: frozenset[QueueId] = frozenset()
        """Queues whose lock lapsed for a while: another member may have committed more."""
        self._changed = threading.Condition()
        self._is_balanced = False
        self._committed_count = 0
        self._stored_count = 0

    # --- for the caller -----------------------------------------------------------------------

    def wait_for_queues(self, timeout_ms: int) -> bool:
        """Wait until a rebalance has included this member; False if the time is over."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_balanced, timeout_ms / 1_000)

    def take(self) -> dict[QueueId, int]:
        """Take every queue that may be read now, and return where each continues.

        Leaves out queues already taken, and queues that another member waits for.
        """
        offsets: dict[QueueId, int] = {}
        time_ms = now_ms()
        for queue, owned in self._queues.owned.items():
            if queue in self._taken or queue in self._doubtful or owned.is_leaving:
                continue
            if not owned.consume_lock.acquire(blocking=False):
                continue  # The queue is being given up.
            if owned.process.is_dropped or not owned.process.is_lock_valid(time_ms):
                owned.consume_lock.release()
                continue
            self._taken[queue] = owned
            offsets[queue] = owned.process.next_begin
        return offsets

    @property
    def taken(self) -> Collection[QueueId]:
        """The queues taken, and neither committed nor released."""
        return self._taken.keys()

    def commit(self, ends: Mapping[QueueId, int]) -> None:
        """Note that taken queues are read up to these offsets; `flush` waits until brokers know."""
        is_changed, known = False, {}
        for queue in [queue for queue in self._taken if queue in ends]:
            owned = self._taken.pop(queue)
            if not owned.process.is_dropped:
                known[queue] = ends[queue]
            with owned.lock:
                is_changed = is_changed or owned.process.next_begin != ends[queue]
                owned.process.next_begin = max(owned.process.next_begin, ends[queue])
                owned.process.last_consume_ms = now_ms()
            owned.consume_lock.release()
        # A member that gains a queue back continues here even if the broker's offset is smaller.
        self._add_known(known)
        if is_changed and self._instance is not None:
            with self._changed:
                self._committed_count += 1
            self._persist_due_ms = 0
            self._instance.nudge()

    def release(self, queues: Iterable[QueueId]) -> None:
        """Release taken queues from which nothing was read."""
        for queue in tuple(queues):
            owned = self._taken.pop(queue, None)
            if owned is not None:
                owned.consume_lock.release()

    def seek(self, queue: QueueId, offset: int) -> None:
        """Continue a taken queue at another offset, because its own no longer exists."""
        owned = self._taken[queue]
        with owned.lock:
            owned.process.next_begin = offset

    def flush(self, timeout_ms: int) -> bool:
        """Wait until the brokers have all committed offsets; False if the time is over."""
        with self._changed:
            count = self._committed_count
            return self._changed.wait_for(lambda: self._stored_count >= count, timeout_ms / 1_000)

    # --- for the client instance: see `Member` ------------------------------------------------

    def rebalance(self) -> None:
        super().rebalance()
        if self._instance is None or self._state is not ConsumerState.RUNNING:
            return
        # If the group has more members than queues, the share is empty.
        if self._queues.owned or not self._rebalance_due_ms:
            with self._changed:
                self._is_balanced = True
                self._changed.notify_all()

    def restart(self, offsets: Mapping[QueueId, int]) -> None:
        self._add_known(offsets)
        super().restart(offsets)

    def housekeep(self, now_ms: int) -> int:
        due_ms = super().housekeep(now_ms)
        with self._rebalance_lock:
            if self._doubtful and self._instance is not None:
                self._doubtful = frozenset(self._queues.lose(self._doubtful))
                self._instance.want_rebalance()
        return due_ms

    def _attach(self, instance: ClientInstance) -> None:
        self._puller = NoPulls(instance.io, self.settings)
        self._queues = OwnedQueues(
            instance, self.settings, self._puller, is_orderly=True, is_forward_only=True
        )
        self._queues.offset_store.known = self._known

    def _stop(self) -> None:
        # The query has ended, so nothing reads the queues of an unfinished batch.
        self.release(tuple(self._taken))

    def _add_known(self, offsets: Mapping[QueueId, int]) -> None:
        store = self._queues.offset_store
        store.known = {**store.known, **offsets}

    def _persist(self, now_ms: int) -> None:
        del now_ms
        count = self._committed_count
        if self._queues.persist():
            with self._changed:
                self._stored_count = count
                self._changed.notify_all()

    def _renew_locks(self, now_ms: int) -> None:
        owned = self._queues.owned
        stale = {queue for queue, one in owned.items() if not one.process.is_lock_valid(now_ms)}
        self._queues.renew_locks()
        stale |= {queue for queue, one in owned.items() if not one.process.is_locked}
        if stale:
            queues = plural(len(stale), "queue")
            _LOG.warning("group=%s: locks of %s lapsed: giving them up", self.group, queues)
            self._doubtful |= stale
