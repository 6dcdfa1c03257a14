"""The queues that a member owns: rebalance, offset commits, and the brokers' queue locks.

By a queue lock one member of a group consumes a queue in order.

The housekeeping thread gains and loses queues; the I/O thread drops queues with illegal offsets.
Both replace the table as a whole, so that any thread may read it at any time.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from operator import attrgetter
from typing import Final

from rocketmq_client.consumer.allocation import Change, change_between, rebalance
from rocketmq_client.consumer.common.io_thread import now_ms
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_client.consumer.membership.offset_store import OffsetStore
from rocketmq_client.consumer.pulling.process_queue import ILLEGAL_DELAY_MS
from rocketmq_client.consumer.pulling.queue_puller import NoPulls, OwnedQueue
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.plural import plural
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.groups import LockQueues, QueuesReply, UnlockQueues

_LOG = logging.getLogger(__name__)
_CONSUME_WAIT_SECONDS: Final = 1.0
_LAST_STORE_ATTEMPTS: Final = 3


@dataclass(slots=True)
class _Correction:
    """The committed offset that replaces an illegal one."""

    owned_after_ms: int
    """The time after which the member may own the queue: the cause may have ended by then."""
    offset: int
    is_stored: bool = False


@dataclass(eq=False)
class OwnedQueues:
    instance: ClientInstance
    settings: ConsumerSettings
    puller: NoPulls
    _: KW_ONLY
    is_orderly: bool = False
    on_change: Callable[[Change], None] | None = None
    commits: bool = True
    """False if the consumer commits offsets itself, through `offset_store`."""
    is_forward_only: bool = False
    """See `OffsetStore`."""

    def __post_init__(self) -> None:
        self._has_locks = self.is_orderly and not self.settings.is_broadcasting
        self.owned: Mapping[QueueId, OwnedQueue] = {}
        io, client_id = self.instance.io, self.instance.client_id
        self.offset_store = OffsetStore(io, client_id, self.settings, self.is_forward_only)
        self._table = threading.Lock()
        self._corrections: dict[QueueId, _Correction] = {}
        """Queues dropped for an illegal offset."""
        self._consume_locks: dict[QueueId, threading.Lock] = {}
        """The locks of all queues ever owned: a listener may outlive the ownership."""

    # --- rebalance ----------------------------------------------------------------------------

    def rebalance(self, topics: Mapping[str, Subscription]) -> bool:
        """Gain and lose queues of the topics; False if some change could not be made now."""
        is_balanced = True
        current = _grouped(self.owned, attrgetter("topic"))
        for topic in [topic for topic in current if topic not in topics]:
            is_balanced = self._apply(Change((), tuple(current[topic])), {}) and is_balanced
        for topic, subscription in topics.items():
            route = self.instance.route(topic)
            if route is None:
                continue
            queues = route.readable_queues(topic)
            try:
                change = self._change_of(topic, queues, current.get(topic, ()))
            except RocketMQError as error:
                _LOG.warning("topic=%s: could not list the group's members: %s", topic, error)
                is_balanced = False
                continue
            kept = set(current.get(topic, ())) - set(change.lost)
            for owned in [one for queue, one in self.owned.items() if queue in kept]:
                owned.is_leaving = False
            is_balanced = self._apply(change, {topic: subscription}) and is_balanced
        self._share_limits()
        return is_balanced

    def own_exactly(self, queues: Iterable[QueueId]) -> bool:
        """Own these queues and no others, without a filter; False as in `rebalance`."""
        wanted = tuple(queues)
        change = change_between(set(self.owned), wanted)
        is_done = self._apply(change, {queue.topic: Subscription() for queue in wanted})
        self._share_limits()
        return is_done

    def _share_limits(self) -> None:
        """Divide a topic's flow limits among its owned queues."""
        owned = self.owned  # Other threads replace the table at any time.
        counts = Counter(queue.topic for queue in owned)
        for queue, one in owned.items():
            one.control.limits = one.control.limits.shared_by(counts[queue.topic])

    def restart(self, queue: QueueId, offset: int) -> OwnedQueue:
        """Continue with an owned queue at another offset; the caller starts its pulls."""
        before = self.owned[queue]
        before.process.drop()
        owned = self._own(queue, offset, before.subscription)
        # This member still has the lock, and the new offset replaces every committed one.
        owned.process.is_locked = self._has_locks
        owned.process.lock_ms = before.process.lock_ms
        owned.control.is_first = False
        owned.control.limits = before.control.limits
        with self._table:
            self.owned = {**self.owned, queue: owned}
        self.offset_store.reset(queue, offset)
        return owned

    def restart_all(self, offsets: Mapping[QueueId, int]) -> None:
        """Continue with the owned ones of these queues at other offsets, and commit them."""
        for queue in offsets.keys() & self._corrections.keys():
            # The administrator's offset is newer than the broker's correction.
            after_ms = self._corrections[queue].owned_after_ms
            self._corrections[queue] = _Correction(after_ms, offsets[queue])
        restarted = {
            queue: self.restart(queue, offset)
            for queue, offset in offsets.items()
            if queue in self.owned
        }
        if self.commits:
            self.offset_store.store({queue: offsets[queue] for queue in restarted})
        for owned in restarted.values():
            self.puller.start(owned)

    def offsets(self) -> dict[QueueId, int]:
        return {queue: one.process.consumed_offset for queue, one in self.owned.items()}

    def _change_of(
        self, topic: str, queues: Iterable[QueueId], current: Iterable[QueueId]
    ) -> Change:
        owned = set(current)
        if self.settings.is_broadcasting:
            return change_between(owned, queues)
        return rebalance(
            self.settings.strategy,
            own_id=self.instance.client_id,
            members=self.instance.members_of(self.settings.group, topic),
            queues=queues,
            current=owned,
        )

    def _apply(self, change: Change, subscriptions: Mapping[str, Subscription]) -> bool:
        """Lose and gain queues; False if some could not be lost or gained yet."""
        if change.is_empty:
            return True
        kept = self.lose(change.lost)
        # Until the correction is stored, the committed offset is still the illegal one.
        wanted = [queue for queue in change.gained if queue not in self._corrections]
        locked = self._lock(wanted) if self._has_locks else wanted
        gained = {}
        for queue, start in self.offset_store.starting_offsets(locked).items():
            owned = self._own(queue, start, subscriptions[queue.topic])
            owned.process.is_locked = self._has_locks
            owned.process.lock_ms = now_ms()
            gained[queue] = owned
        if gained:
            with self._table:
                self.owned = {**self.owned, **gained}
            for owned in gained.values():
                self.puller.start(owned)
        if gained or change.lost:
            _LOG.info(
                "group=%s client=%s: %d queues gained, %d lost, %d owned",
                self.settings.group,
                self.instance.client_id,
                len(gained),
                len(change.lost) - len(kept),
                len(self.owned),
            )
            if self.on_change is not None:
                self.on_change(Change(tuple(gained), tuple(set(change.lost) - set(kept))))
        return not kept and len(gained) == len(change.gained)

    def _own(self, queue: QueueId, start: int, subscription: Subscription) -> OwnedQueue:
        owned = self.puller.own(queue, start, subscription)
        # A listener that still runs with the queue's last batch has to end first.
        owned.consume_lock = self._consume_locks.setdefault(queue, owned.consume_lock)
        return owned

    def lose(self, queues: Iterable[QueueId]) -> list[QueueId]:
        """Give queues up: stop consuming, store their offsets, return their locks.

        Returns the queues whose listener did not end in time: they stay owned, and the next
        rebalance gives them up.
        """
        kept, gone = [], []
        for queue in queues:
            owned = self.owned.get(queue)
            if owned is None:
                continue
            if self._drop(owned, _CONSUME_WAIT_SECONDS):
                gone.append(owned)
            else:
                kept.append(queue)
        self._store({owned.queue: _consumed(owned) for owned in gone})
        self._unlock([owned.queue for owned in gone])
        self._forget(gone)
        return kept

    def lose_all(self) -> None:
        """Give every queue up at shutdown, and store the offsets of each in any case.

        A running listener does not change the consumed offset, so that is stored. The lock of its
        queue is not returned but expires; by then the listener may have ended.
        """
        owned = tuple(self.owned.values())
        free = [one.queue for one in owned if self._drop(one, 0)]
        for one in owned:
            one.process.drop()
        due = {one.queue: _consumed(one) for one in owned}
        due |= {q: one.offset for q, one in self._corrections.items() if not one.is_stored}
        for _ in range(_LAST_STORE_ATTEMPTS):
            due = self._store(due)
            if not due:
                break
        self._unlock(free)
        if len(free) < len(owned):
            _LOG.warning(
                "group=%s: a listener still runs, so the locks of %s were left to expire",
                self.settings.group,
                plural(len(owned) - len(free), "queue"),
            )
        self._forget(owned)

    def _drop(self, owned: OwnedQueue, wait_seconds: float) -> bool:
        """Drop the queue; False if an orderly listener does not end in time."""
        if not self._has_locks:
            owned.process.drop()
            return True
        # The next owner must not start before our listener has ended its batch.
        owned.is_leaving = True
        if not owned.consume_lock.acquire(timeout=wait_seconds):
            return False
        owned.process.drop()
        owned.consume_lock.release()
        return True

    def _forget(self, gone: Iterable[OwnedQueue]) -> None:
        names = {owned.queue for owned in gone}
        with self._table:
            self.owned = {queue: one for queue, one in self.owned.items() if queue not in names}
        self.offset_store.forget(names)

    # --- offsets ------------------------------------------------------------------------------

    def persist(self) -> bool:
        """Store corrections and the offsets of every owned queue; False if some were not stored."""
        self.store_corrections()
        owned = self.owned
        for queue, one in owned.items():
            if not one.process.is_dropped:
                self.offset_store.note(queue, _consumed(one))
        due = self.offset_store.due(
            [queue for queue, one in owned.items() if self._may_commit(one)]
        )
        return not self._store(due)

    def store_corrections(self) -> None:
        """Replace the committed offsets that were illegal; later their queues may be owned again.

        Stored at once: another member that gains the queue would otherwise start at a later end
        and skip the messages in between.
        """
        corrections = dict(self._corrections)  # The I/O thread adds to it.
        if not corrections:
            return
        self.offset_store.forget(corrections)
        unstored = {q: one.offset for q, one in corrections.items() if not one.is_stored}
        failed = self._store(unstored)
        is_changed, time_ms = False, now_ms()
        for queue, one in corrections.items():
            one.is_stored = queue not in failed
            if one.is_stored and one.owned_after_ms <= time_ms:
                del self._corrections[queue]
                is_changed = True
        if is_changed:
            self.instance.want_rebalance()

    def correct(self, owned: OwnedQueue, offset: int) -> None:
        """Give up a queue that was dropped for an illegal offset; it may be owned again in 10 s.

        The nudged member stores the corrected offset at once (`store_corrections`).
        """
        queue = owned.queue
        self._corrections[queue] = _Correction(now_ms() + ILLEGAL_DELAY_MS, offset)
        with self._table:
            self.owned = {known: one for known, one in self.owned.items() if known != queue}
        self.instance.nudge()

    def _store(self, offsets: Mapping[QueueId, int]) -> dict[QueueId, int]:
        return self.offset_store.store_forward(offsets) if self.commits else {}

    def _may_commit(self, owned: OwnedQueue) -> bool:
        # Under a new lock the committed offset is read before the first pull, not written.
        return self.offset_store.is_forward_only or not (self._has_locks and owned.control.is_first)

    # --- locks --------------------------------------------------------------------------------

    def renew_locks(self) -> None:
        """Renew the locks of all owned queues; a queue whose lock is refused pauses."""
        if not self._has_locks:
            return
        owned = self.owned
        granted = set(self._lock(owned))
        time_ms = now_ms()
        for queue, one in owned.items():
            if queue in granted:
                one.process.is_locked = True
                one.process.lock_ms = time_ms
            elif one.process.is_locked:
                _LOG.warning("%s: the broker did not renew its lock", queue)
                one.process.is_locked = False

    def drop_stale(self, time_ms: int) -> bool:
        """Give up queues whose pulls have stopped, so that they start again; True if some did.

        Every pull returns, if only with an error, so this should never happen.
        """
        stale = [queue for queue, one in self.owned.items() if self.puller.is_stale(one, time_ms)]
        for queue in stale:
            _LOG.error("%s: nothing was pulled for two minutes: restarting its pulls", queue)
        self.lose(stale)
        return bool(stale)

    def _lock(self, queues: Iterable[QueueId]) -> list[QueueId]:
        """Lock queues, or renew their locks; returns those that were granted."""
        granted: list[QueueId] = []
        for broker, reply in self._ask_brokers(LockQueues, queues).items():
            if isinstance(reply, QueuesReply):
                granted += reply.queues
            else:
                _LOG.warning("broker=%s: queues could not be locked: %s", broker, reply)
        return granted

    def _unlock(self, queues: Iterable[QueueId]) -> None:
        """Let other members lock the queues; a lock whose release fails expires."""
        if self._has_locks:
            self._ask_brokers(UnlockQueues, queues)

    def _ask_brokers(
        self, kind: type[LockQueues | UnlockQueues], queues: Iterable[QueueId]
    ) -> dict[str, Reply | RocketMQError]:
        group, client_id = self.settings.group, self.instance.client_id
        by_broker = _grouped(queues, attrgetter("broker"))
        replies = self.instance.io.call_many(
            [(name, kind(group, client_id, tuple(some))) for name, some in by_broker.items()],
            timeout_ms=self.settings.request_timeout_ms,
        )
        return dict(zip(by_broker, replies, strict=True))


def _grouped(queues: Iterable[QueueId], key: Callable[[QueueId], str]) -> dict[str, list[QueueId]]:
    groups: dict[str, list[QueueId]] = defaultdict(list)
    for queue in queues:
        groups[key(queue)].append(queue)
    return groups


def _consumed(owned: OwnedQueue) -> int:
    with owned.lock:
        return owned.process.consumed_offset
