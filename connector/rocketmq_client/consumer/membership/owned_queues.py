"""The queues that a member owns now: gained and lost by rebalance, their progress and their locks.

The housekeeping thread gains and loses queues, the wire thread loses those with illegal offsets;
the table is replaced whole, so that others may read it at any time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_client.consumer.allocation.rebalance import Change, change_between, rebalance
from rocketmq_client.consumer.common.io_thread import now_ms
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_client.consumer.membership.queue_locks import QueueLocks
from rocketmq_client.consumer.offset_store.local_file import LocalOffsetFile, ProgressFileError
from rocketmq_client.consumer.offset_store.offset_table import OffsetTable
from rocketmq_client.consumer.offset_store.start_offset import ConsumeFrom, Need, start_of
from rocketmq_client.consumer.pulling.pull_control import ILLEGAL_DELAY_MS
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue, QueuePuller
from rocketmq_client.offsets.bounds import search_times
from rocketmq_client.offsets.offset_commit import commit_in_rounds
from rocketmq_wire.errors import ProgressNotFoundError, RocketMQError
from rocketmq_wire.model import RETRY_PREFIX, QueueId, Subscription
from rocketmq_wire.plural import plural
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.offsets import (
    Boundary,
    CommitOffset,
    GetCommittedOffset,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
)

_LOG = logging.getLogger(__name__)
_HALF_HOUR_MS: Final = 30 * 60_000
_CONSUME_WAIT_SECONDS: Final = 1.0
_LAST_STORE_TRIES: Final = 3


@dataclass(slots=True)
class _Correction:
    back_ms: int
    """When the queue may be owned again: whatever is wrong with it has some time to end."""
    offset: int
    is_stored: bool = False


class OwnedQueues:
    """One member's queues."""

    def __init__(
        self,
        instance: ClientInstance,
        settings: ConsumerSettings,
        puller: QueuePuller,
        *,
        is_orderly: bool,
        on_change: Callable[[Change], None] | None = None,
    ) -> None:
        self._instance, self._settings, self._puller = instance, settings, puller
        self._locks = is_orderly and not settings.is_broadcasting
        self._queue_locks = QueueLocks(instance, settings)
        self._on_change = on_change
        self.owned: Mapping[QueueId, OwnedQueue] = {}
        self.keeps_progress = True
        """False for a member whose owner says itself what is consumed, by `store`."""
        self.is_cautious = False
        """True for a member that may be behind another one: it never moves progress backward."""
        self.known: Mapping[QueueId, int] = {}
        """What is known to be consumed besides what is stored, for a cautious member."""
        self._table = threading.Lock()
        self._corrections: dict[QueueId, _Correction] = {}
        """Queues dropped for an illegal offset."""
        self._consume_locks: dict[QueueId, threading.Lock] = {}
        """Of every queue that was ever owned: a listener may outlive an ownership."""
        self._local = (
            LocalOffsetFile(instance.client_id, settings.group)
            if settings.is_broadcasting
            else None
        )
        self.progress = OffsetTable(self._local.load() if self._local is not None else {})

    # --- rebalance ----------------------------------------------------------------------------

    def rebalance(self, topics: Mapping[str, Subscription]) -> bool:
        """Share the topics' queues anew; False if something of it could not be done now."""
        is_balanced = True
        current = self._owned_by_topic()
        for topic in [topic for topic in current if topic not in topics]:
            is_balanced = self._apply(Change((), tuple(current[topic])), {}) and is_balanced
        for topic, subscription in topics.items():
            route = self._instance.route(topic)
            if route is None:
                continue
            queues = route.readable_queues(topic)
            try:
                change = self._change_of(topic, queues, current.get(topic, ()))
            except RocketMQError as error:
                _LOG.warning("topic=%s: the group's members are not known: %s", topic, error)
                is_balanced = False
                continue
            kept = set(current.get(topic, ())) - set(change.lost)
            for owned in [one for queue, one in self.owned.items() if queue in kept]:
                owned.is_leaving = False
            is_balanced = self._apply(change, {topic: subscription}) and is_balanced
        self._share_limits()
        return is_balanced

    def take_exactly(self, queues: Iterable[QueueId]) -> bool:
        """Read these queues and no others, every message of them."""
        wanted = tuple(queues)
        change = change_between(set(self.owned), wanted)
        is_done = self._apply(change, {queue.topic: Subscription() for queue in wanted})
        self._share_limits()
        return is_done

    def _share_limits(self) -> None:
        """What a topic may hold here is for all of its queues."""
        owned = self.owned  # Replaced whole by others at any time.
        counts = Counter(queue.topic for queue in owned)
        for queue, one in owned.items():
            one.control.limits = one.control.limits.shared_by(counts[queue.topic])

    def restart(self, queue: QueueId, offset: int) -> OwnedQueue:
        """Go on with an owned queue at another offset; the caller has it pulled from."""
        before = self.owned[queue]
        before.process.drop()
        owned = self._own(queue, offset, before.subscription)
        # The lock is still ours, and what another member stored before does not count.
        owned.process.is_locked, owned.process.lock_ms = self._locks, before.process.lock_ms
        owned.control.is_first = False
        owned.control.limits = before.control.limits
        with self._table:
            self.owned = {**self.owned, queue: owned}
        self.progress.update(queue, offset, increase_only=False)
        return owned

    def restart_all(self, offsets: Mapping[QueueId, int]) -> None:
        """Go on at other offsets in those queues that are owned, and store that."""
        for queue in offsets.keys() & self._corrections.keys():
            # What an administrator says is newer than what the broker answered.
            self._corrections[queue] = _Correction(self._corrections[queue].back_ms, offsets[queue])
        restarted = {
            queue: self.restart(queue, offset)
            for queue, offset in offsets.items()
            if queue in self.owned
        }
        if self.keeps_progress:
            self.store({queue: offsets[queue] for queue in restarted})
        for owned in restarted.values():
            self._puller.start(owned)

    def offsets(self) -> dict[QueueId, int]:
        """How far the owned queues are consumed."""
        return {queue: one.process.done for queue, one in self.owned.items()}

    def _change_of(
        self, topic: str, queues: Iterable[QueueId], current: Iterable[QueueId]
    ) -> Change:
        held = set(current)
        if self._settings.is_broadcasting:
            return change_between(held, queues)
        return rebalance(
            self._settings.strategy,
            own_id=self._instance.client_id,
            members=self._instance.members_of(self._settings.group, topic),
            queues=queues,
            current=held,
        )

    def _apply(self, change: Change, subscriptions: Mapping[str, Subscription]) -> bool:
        """Give up and gain; False if a queue could not be given up or had yet."""
        if change.is_empty:
            return True
        left = self.lose(change.lost)
        # As long as it is not corrected, the stored progress is as illegal as it was.
        wanted = [queue for queue in change.gained if queue not in self._corrections]
        locked = self._queue_locks.acquire(wanted) if self._locks else wanted
        starts = self._starts(locked)
        gained = {}
        for queue, start in starts.items():
            owned = self._own(queue, start, subscriptions[queue.topic])
            owned.process.is_locked, owned.process.lock_ms = self._locks, now_ms()
            gained[queue] = owned
        if gained:
            with self._table:
                self.owned = {**self.owned, **gained}
            for owned in gained.values():
                self._puller.start(owned)
        if gained or change.lost:
            _LOG.info(
                "group=%s client=%s: %d queues gained, %d lost, %d owned",
                self._settings.group,
                self._instance.client_id,
                len(gained),
                len(change.lost) - len(left),
                len(self.owned),
            )
            if self._on_change is not None:
                self._on_change(Change(tuple(gained), tuple(set(change.lost) - set(left))))
        return not left and len(gained) == len(change.gained)

    def _own(self, queue: QueueId, start: int, subscription: Subscription) -> OwnedQueue:
        owned = self._puller.own(queue, start, subscription)
        # A listener that is still at the queue's last batch from before has to end first.
        owned.consume_lock = self._consume_locks.setdefault(queue, owned.consume_lock)
        return owned

    def lose(self, queues: Iterable[QueueId]) -> list[QueueId]:
        """Give queues up: nothing more is consumed, progress is stored, locks are returned.

        The queues that a listener does not let go of in time stay, to be asked for again.
        """
        left, gone = [], []
        for queue in queues:
            owned = self.owned.get(queue)
            if owned is None:
                continue
            if self._let_go(owned, _CONSUME_WAIT_SECONDS):
                gone.append(owned)
            else:
                left.append(queue)
        self._store({owned.queue: self._done(owned) for owned in gone})
        if self._locks:
            self._queue_locks.release([owned.queue for owned in gone])
        self._forget(gone)
        return left

    def lose_all(self) -> None:
        """The end: give every queue up, and store the progress of each whatever happens.

        A listener that is still at work has finished what counts as done, so that much is stored.
        Its queue's lock is not returned: it expires, by when the listener may have ended.
        """
        owned = tuple(self.owned.values())
        free = [one.queue for one in owned if self._let_go(one, 0)]
        for one in owned:
            one.process.drop()
        due = {one.queue: self._done(one) for one in owned}
        due |= {q: one.offset for q, one in self._corrections.items() if not one.is_stored}
        for _ in range(_LAST_STORE_TRIES):
            due = self._store(due)
            if not due:
                break
        if self._locks:
            self._queue_locks.release(free)
        if len(free) < len(owned):
            _LOG.warning(
                "group=%s: %s left to the expiry of locks: a listener is at work",
                self._settings.group,
                plural(len(owned) - len(free), "queue"),
            )
        self._forget(owned)

    def _let_go(self, owned: OwnedQueue, wait_seconds: float) -> bool:
        """Drop the queue; False if a listener consumes it in order and does not end in time."""
        if not self._locks:
            owned.process.drop()
            return True
        # Whoever has the lock next must not begin before our listener has ended its batch.
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
        for queue in names:
            self.progress.remove(queue)

    # --- progress -----------------------------------------------------------------------------

    def persist(self) -> bool:
        """Store the progress of every owned queue, and what was corrected; False if that failed."""
        self.store_corrections()
        owned = self.owned
        for queue, one in owned.items():
            if not one.process.is_dropped:
                self.progress.update(queue, self._done(one))
        # A locked queue's progress is re-read before its first pull: until then it is not ours.
        due = self.progress.due([queue for queue, one in owned.items() if self._is_known(one)])
        return not self._store(due)

    def store_corrections(self) -> None:
        """Put the progress right that led to illegal offsets; let their queues come back in time.

        Stored at once: whoever gets such a queue meanwhile would be told a later end, and skip
        what came in between.
        """
        corrections = dict(self._corrections)  # The wire thread adds to it.
        if not corrections:
            return
        for queue in corrections:
            self.progress.remove(queue)
        failed = self._store({q: one.offset for q, one in corrections.items() if not one.is_stored})
        is_news, time_ms = False, now_ms()
        for queue, one in corrections.items():
            one.is_stored = queue not in failed
            if one.is_stored and one.back_ms <= time_ms:
                del self._corrections[queue]
                is_news = True
        if is_news:
            self._instance.want_rebalance()

    def correct(self, owned: OwnedQueue, offset: int) -> None:
        """The queue's offset was illegal: it was dropped, and comes back in 10 s where it can.

        Its progress is stored at once, which a nudged member does by `store_corrections`.
        """
        queue = owned.queue
        self._corrections[queue] = _Correction(now_ms() + ILLEGAL_DELAY_MS, offset)
        with self._table:
            self.owned = {known: one for known, one in self.owned.items() if known != queue}
        self._instance.nudge()

    def _is_known(self, owned: OwnedQueue) -> bool:
        return self.is_cautious or not (self._locks and owned.control.is_first)

    def _done(self, owned: OwnedQueue) -> int:
        with owned.lock:
            return owned.process.done

    def _store(self, offsets: Mapping[QueueId, int]) -> dict[QueueId, int]:
        if not offsets or not self.keeps_progress:
            return {}
        if not self.is_cautious:
            return self.store(offsets)
        stored = self._stored(offsets)
        unknown = {queue: offset for queue, offset in offsets.items() if queue not in stored}
        ahead = {q: n for q, n in offsets.items() if q in stored and n > (stored[q] or 0)}
        return {**self.store(ahead), **unknown}

    def store(self, offsets: Mapping[QueueId, int]) -> dict[QueueId, int]:
        """Store progress; what could not be stored, and may be another time."""
        if not offsets:
            return {}
        if self._local is not None:
            try:
                self._local.save({**self._local.load(), **self.progress.offsets, **offsets})
            except (OSError, ProgressFileError) as error:
                _LOG.warning("progress cannot be kept in %s: %s", self._local.path, error)
                return dict(offsets)
            return {}
        group = self._settings.group

        def commit(queues: Sequence[QueueId]) -> dict[QueueId, Reply | RocketMQError]:
            requests = {queue: CommitOffset(group, queue, offsets[queue]) for queue in queues}
            return self._ask_all(requests, "store the group's progress")

        replies = commit_in_rounds(offsets, commit)
        failed = {q: reply for q, reply in replies.items() if isinstance(reply, RocketMQError)}
        return {queue: offsets[queue] for queue, error in failed.items() if error.retryable}

    def _starts(self, queues: Iterable[QueueId]) -> dict[QueueId, int]:
        """Where to begin; queues of which that is not known now are left out."""
        starts: dict[QueueId, int] = {}
        asked: dict[QueueId, Request[Reply]] = {}
        by_time: list[QueueId] = []
        for queue, stored in self._stored(queues).items():
            if self.is_cautious and (stored is None or stored < self.known.get(queue, 0)):
                stored = self.known.get(queue, stored)
            start = start_of(queue, stored, self._settings.consume_from)
            if start.need is Need.NOTHING and self.is_cautious and (stored is None or stored < 0):
                asked[queue] = GetMinOffset(queue)
            elif start.need is Need.NOTHING:
                starts[queue] = start.offset
            elif start.need is Need.END:
                asked[queue] = GetMaxOffset(queue)
            else:
                by_time.append(queue)
        for queue, reply in self._ask_all(asked, "learn where to begin").items():
            if isinstance(reply, OffsetReply):
                starts[queue] = max(reply.value, 0)
        return {**starts, **self._search(by_time)}

    def _search(self, queues: Sequence[QueueId]) -> dict[QueueId, int]:
        """Where the time to begin at is; old brokers' own answers would skip messages."""
        times = dict.fromkeys(queues, self._timestamp_ms())
        wire, timeout_ms = self._instance.wire, self._settings.request_timeout_ms
        found = search_times(
            lambda requests: wire.call_many(requests, timeout_ms=timeout_ms),
            times,
            Boundary.LOWER,
            self._settings.group,
        )
        for queue, offset in found.items():
            if isinstance(offset, RocketMQError):
                _LOG.warning("%s: could not learn where to begin: %s", queue, offset)
        return {queue: offset for queue, offset in found.items() if isinstance(offset, int)}

    def _stored(self, queues: Iterable[QueueId]) -> dict[QueueId, int | None]:
        if self._local is not None:
            stored = self._local.load()
            return {queue: stored.get(queue) for queue in queues}
        group = self._settings.group
        found: dict[QueueId, int | None] = {}
        # Of a young queue brokers say 0 to a group without progress, so that it skips nothing that
        # came since its first member began. A place that a time says is as safe, and what is asked.
        is_by_time = self._settings.consume_from is ConsumeFrom.TIMESTAMP
        requests = {
            queue: GetCommittedOffset(
                group,
                queue,
                zero_if_absent=not is_by_time or queue.topic.startswith(RETRY_PREFIX),
            )
            for queue in queues
        }
        for queue, reply in self._ask_all(requests, "read the group's progress").items():
            if isinstance(reply, OffsetReply):
                found[queue] = reply.value
            elif isinstance(reply, ProgressNotFoundError):
                found[queue] = None
        return found

    def _timestamp_ms(self) -> int:
        chosen = self._settings.consume_timestamp_ms
        return time.time_ns() // 1_000_000 - _HALF_HOUR_MS if chosen is None else chosen

    # --- locks --------------------------------------------------------------------------------

    def renew_locks(self) -> None:
        """Renew the locks of all owned queues; what is not granted any more stands still."""
        if not self._locks:
            return
        owned = self.owned
        granted = set(self._queue_locks.acquire(owned))
        time_ms = now_ms()
        for queue, one in owned.items():
            if queue in granted:
                one.process.is_locked, one.process.lock_ms = True, time_ms
            elif one.process.is_locked:
                _LOG.warning("%s: the lock was lost", queue)
                one.process.is_locked = False

    # --- inside -------------------------------------------------------------------------------

    def _owned_by_topic(self) -> dict[str, list[QueueId]]:
        by_topic: dict[str, list[QueueId]] = defaultdict(list)
        for queue in self.owned:
            by_topic[queue.topic].append(queue)
        return by_topic

    def _ask_all(
        self, requests: Mapping[QueueId, Request[Reply]], what: str
    ) -> dict[QueueId, Reply | RocketMQError]:
        replies = self._instance.wire.call_many(
            [(queue.broker, request) for queue, request in requests.items()],
            timeout_ms=self._settings.request_timeout_ms,
        )
        for queue, reply in zip(requests, replies, strict=True):
            if isinstance(reply, RocketMQError) and not isinstance(reply, ProgressNotFoundError):
                _LOG.warning("%s: could not %s: %s", queue, what, reply)
        return dict(zip(requests, replies, strict=True))

    def drop_stale(self, time_ms: int) -> bool:
        """Give up queues whose pulls have died, to begin with them again; True if there were any.

        A pull always comes back, if only as an error: this should never happen.
        """
        stale = [queue for queue, one in self.owned.items() if one.process.is_pull_stale(time_ms)]
        for queue in stale:
            _LOG.error("%s: nothing was pulled for two minutes: beginning again", queue)
        self.lose(stale)
        return bool(stale)
