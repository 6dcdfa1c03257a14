"""Pulls from owned queues in the I/O thread, as their `PullControl` decides."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from rocketmq_client.consumer.common.io_thread import IoThread, now_ms
from rocketmq_client.consumer.common.messages import ReceivedMessage, decode_pull, tags_of
from rocketmq_client.consumer.common.rates import Rates
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.pulling.process_queue import (
    FlowLimit,
    ProcessQueue,
    PullControl,
    Step,
)
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, ProgressNotFoundError, RocketMQError
from rocketmq_wire.hashes import java_hash
from rocketmq_wire.model import MASTER_ID, RETRY_PREFIX, QueueId, Subscription
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.messages import LOST_REMARK, PullMessages, PullReply, PullStatus
from rocketmq_wire.requests.offsets import GetCommittedOffset, OffsetReply

_LOG = logging.getLogger(__name__)

# A real broker checks held pulls for expiry only every five seconds.
HOLD_GRACE_MS: Final = 10_000
_DELAYS_LOGGED: Final = 1_000
_LOGGED: Final = {
    Step.SUSPENDED: (logging.WARNING, "the consumer is suspended: pulling later"),
    Step.UNWANTED: (logging.WARNING, "its topic is not subscribed: pulling later"),
    Step.UNLOCKED: (logging.INFO, "it is not locked in the broker: pulling later"),
}
"""Waits that are logged, at RocketMQ's levels."""
_UNREGISTERED: Final = (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)


class Subscribed(NamedTuple):
    """A topic's subscription, and its version in heartbeats: a larger one is newer."""

    subscription: Subscription
    version: int


@dataclass(slots=True, eq=False)
class OwnedQueue:
    """A queue of this member and its state. `lock` guards `process`."""

    queue: QueueId
    process: ProcessQueue
    control: PullControl
    subscription: Subscription
    tags: frozenset[str]
    lock: threading.Lock = field(default_factory=threading.Lock)
    consume_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the queue is consumed in order."""
    is_consuming: bool = False
    """Orderly: a thread consumes the queue, or will."""
    uncommitted: list[ReceivedMessage] = field(default_factory=list)
    """Orderly without auto-commit: consumed messages, neither committed nor rolled back."""
    is_step_due: bool = False
    """A timer will run its next step."""
    is_leaving: bool = False
    """Another member gets the queue as soon as the running listener has ended."""
    is_replica_suggested: bool = False
    """The broker suggested a replica for the next pull."""
    version: int = -1
    """The subscription's version."""
    logged: Step | None = None
    """Why it is not pulled from now, as far as the log says it."""


@dataclass(eq=False)
class NoPulls:
    """The owned queues of a member whose caller reads them."""

    io: IoThread
    settings: ConsumerSettings
    _: KW_ONLY
    is_orderly: bool = False

    def own(self, queue: QueueId, start: int, subscription: Subscription) -> OwnedQueue:
        """Create a queue's state; `start` begins its pulls."""
        limits = self.settings.limits
        if self.is_orderly:
            limits = replace(limits, span_max=None)
        is_locking = self.is_orderly and not self.settings.is_broadcasting
        control = PullControl(limits, is_locking, self.settings.pull_interval_ms)
        process = ProcessQueue(start, last_pull_ms=now_ms())
        return OwnedQueue(queue, process, control, subscription, tags_of(subscription))

    def start(self, owned: OwnedQueue) -> None:
        """Nothing is pulled here."""

    def is_stale(self, owned: OwnedQueue, time_ms: int) -> bool:
        """The queue's pulls have stopped."""
        del owned, time_ms
        return False


@dataclass(eq=False)
class QueuePuller(NoPulls):
    """One consumer's pulls. Any thread may call `start`; the rest runs in the I/O thread."""

    _: KW_ONLY
    on_messages: Callable[[OwnedQueue, list[ReceivedMessage]], None]
    on_illegal: Callable[[OwnedQueue, int], None]
    subscription_of: Callable[[str], Subscribed | None]
    """A topic's subscription now; None if it was just given up."""
    posts_subscription: bool = True
    """False: brokers filter by the subscription in the group's heartbeat."""
    on_unregistered: Callable[[], None] = lambda: None
    """A broker does not know this member's subscription: it needs a heartbeat."""
    rates: Rates = field(default_factory=lambda: Rates(now_ms()))
    is_full: Callable[[], bool] = lambda: False
    """Pauses every queue."""
    commits_on_pull: bool = True
    is_suspended: bool = False
    is_stopping: bool = False
    paused: frozenset[QueueId] = frozenset()
    """Queues that are not pulled from."""
    delays: Counter[FlowLimit] = field(default_factory=Counter)
    """How often each limit delayed a pull of this consumer."""
    mismatches: int = 0
    """How many pulls brought messages that another member's subscription let through."""

    def start(self, owned: OwnedQueue) -> None:
        """Pull from the queue until it is dropped; a second call runs its next step at once."""
        self.io.post(partial(self._step, owned))

    def is_stale(self, owned: OwnedQueue, time_ms: int) -> bool:
        return owned.process.is_pull_stale(time_ms)

    # --- in the I/O thread --------------------------------------------------------------------

    def _step(self, owned: OwnedQueue) -> None:
        control, time_ms = owned.control, now_ms()
        wanted = self.subscription_of(owned.queue.topic)
        if wanted is not None and wanted != (owned.subscription, owned.version):
            owned.subscription, owned.version = wanted
            owned.tags = tags_of(owned.subscription)
        with owned.lock:
            step = control.step(
                owned.process,
                time_ms,
                is_suspended=self.is_suspended or self.is_stopping or owned.queue in self.paused,
                is_wanted=wanted is not None,
                is_full=self.is_full(),
            )
            exceeded = control.exceeded
        if step is Step.PULL:
            owned.logged = None
            self._pull(owned, time_ms)
        elif step is Step.REREAD:
            owned.logged = None
            self.io.send(
                GetCommittedOffset(self.settings.group, owned.queue),
                broker=owned.queue.broker,
                timeout_ms=self.settings.request_timeout_ms,
                on_done=partial(self._on_committed_offset, owned),
            )
        elif step is Step.FLOW and exceeded is not None:
            self._count_delay(owned, exceeded)
            self._step_later(owned)
        elif step in _LOGGED:
            self._log_step(owned, step)
            self._step_later(owned)
        elif step is Step.WAIT and not control.is_pulling:
            self._step_later(owned)

    def _log_step(self, owned: OwnedQueue, step: Step) -> None:
        """Log why a queue is not pulled from, once until it is pulled from again."""
        if step is owned.logged or self.is_stopping:
            return
        owned.logged = step
        level, text = _LOGGED[step]
        if step is Step.SUSPENDED and not self.is_suspended:
            level = logging.DEBUG
        _LOG.log(level, "group=%s %s: %s", self.settings.group, owned.queue, text)

    def _count_delay(self, owned: OwnedQueue, exceeded: FlowLimit) -> None:
        """Count a delay by a limit, and log the first of every thousand of its kind."""
        process, limits = owned.process, owned.control.limits
        delays = self.delays[exceeded]
        self.delays[exceeded] += 1
        if delays % _DELAYS_LOGGED:
            return
        with owned.lock:
            first = process.waiting_from
            last = first + process.span
            count, size = process.count, process.size
        _LOG.warning(
            "group=%s %s: flow control by %s: minOffset=%d maxOffset=%d count=%d size=%d bytes, "
            "limits: count=%d size=%d bytes span=%s, nextOffset=%d flowControlTimes=%d",
            self.settings.group,
            owned.queue,
            exceeded.value,
            first,
            last,
            count,
            size,
            limits.count_max,
            limits.size_max,
            limits.span_max,
            process.next_begin,
            delays + 1,
        )

    def _step_later(self, owned: OwnedQueue) -> None:
        if not owned.is_step_due:
            owned.is_step_due = True
            self.io.at(owned.control.not_before_ms, partial(self._step_now, owned))

    def _step_now(self, owned: OwnedQueue) -> None:
        owned.is_step_due = False
        self._step(owned)

    def _pull(self, owned: OwnedQueue, time_ms: int) -> None:
        settings, process = self.settings, owned.process
        commits = self.commits_on_pull and not settings.is_broadcasting
        done = process.consumed_offset if commits else 0
        # A replica stores no offsets, and a pull that waits for messages waits at the master.
        is_at_master = not owned.is_replica_suggested
        request = PullMessages(
            group=settings.group,
            queue=owned.queue,
            start=process.next_begin,
            count_max=owned.control.room(process, settings.pull_batch_size),
            subscription=owned.subscription,
            subscription_version=owned.version,
            uses_registered_subscription=not self.posts_subscription,
            commit=done if done > 0 and is_at_master else None,
            suspend_ms=settings.suspend_ms if is_at_master else None,
        )
        self.io.send(
            request,
            broker=owned.queue.broker,
            timeout_ms=max(settings.pull_timeout_ms, settings.suspend_ms + HOLD_GRACE_MS),
            on_done=partial(self._on_pull, owned, request.start, time_ms),
        )

    def _on_pull(
        self, owned: OwnedQueue, start: int, sent_ms: int, result: Reply | RocketMQError
    ) -> None:
        process, control, time_ms = owned.process, owned.control, now_ms()
        if process.is_dropped:
            return
        if isinstance(result, RocketMQError):
            self._on_error(owned, result, time_ms)
            return
        assert isinstance(result, PullReply)
        process.last_pull_ms = time_ms
        owned.is_replica_suggested = result.suggested_broker_id != MASTER_ID
        control.on_reply()
        if not self.posts_subscription:
            wanted = self.subscription_of(owned.queue.topic)
            if wanted is None or wanted.version != owned.version:
                # The broker may have filtered by the newer subscription, which this pull's tags
                # would filter once more: its messages are pulled again.
                self._step(owned)
                return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            self._on_illegal_offset(owned, start, result)
            return
        messages: list[ReceivedMessage] = []
        next_begin = result.next_begin
        if result.status is PullStatus.FOUND:
            try:
                dropped: list[str | None] = []
                messages, next_begin = decode_pull(
                    result, owned.queue, owned.tags, self.settings.namespace, dropped
                )
                if dropped:
                    self._check_dropped(owned, dropped)
            except RocketMQError as error:
                self._on_error(owned, error, time_ms)
                return
            self._on_found(owned, len(messages), sent_ms)
        elif result.next_begin <= start:
            control.on_empty_reply(time_ms, time_ms - sent_ms)
        elif result.remark == LOST_REMARK:
            _LOG.error(
                "%s: the broker lost the messages of offsets [%d,%d): a repair of its store gave "
                "them up. Continuing behind them",
                owned.queue,
                start,
                result.next_begin,
            )
        first = messages[0].queue_offset if messages else start
        if min(first, result.next_begin) < start:
            _LOG.warning(
                "%s: the broker answered a pull at %d with the first offset %d and the next %d, "
                "which is backward",
                owned.queue,
                start,
                first,
                result.next_begin,
            )
        with owned.lock:
            process.add(messages, next_begin)
        if messages:
            self.on_messages(owned, messages)
        self._step(owned)

    def _check_dropped(self, owned: OwnedQueue, dropped: list[str | None]) -> None:
        """Log that the broker filtered by another subscription, not only that tags collide."""
        hashes = {java_hash(tag) for tag in owned.tags}
        others = {tag for tag in dropped if tag is None or java_hash(tag) not in hashes}
        if not others:
            return
        self.mismatches += 1
        if self.mismatches % _DELAYS_LOGGED == 1:
            _LOG.error(
                "group=%s %s: the broker filtered by another subscription than %r: messages with "
                "the tag %s were dropped. Give all members of the group the same subscription, or "
                "set post_subscription_when_pull",
                self.settings.group,
                owned.queue,
                owned.subscription.expression,
                sorted(map(str, others))[0],
            )

    def _on_found(self, owned: OwnedQueue, count: int, sent_ms: int) -> None:
        time_ms = now_ms()
        counts = self.rates.of(owned.queue.topic)
        counts.pulls += 1
        counts.pull_ms += time_ms - sent_ms
        counts.pulled += count
        if count:
            owned.control.on_found(time_ms)

    def _on_illegal_offset(self, owned: OwnedQueue, start: int, reply: PullReply) -> None:
        process = owned.process
        _LOG.warning(
            "%s: offset %d is illegal, the queue has [%d,%d): continuing at %d",
            owned.queue,
            start,
            reply.start,
            reply.end,
            reply.next_begin,
        )
        is_expired = start < reply.start <= reply.next_begin
        with owned.lock:
            offset = process.corrected(reply.next_begin)
            if is_expired:
                # Messages pulled before are still consumed: they exist only here now.
                process.add([], reply.next_begin)
            else:
                process.drop()
        if is_expired:
            self._step(owned)
        else:
            self.on_illegal(owned, offset)

    def _on_error(self, owned: OwnedQueue, error: RocketMQError, time_ms: int) -> None:
        owned.control.on_error(error, time_ms)
        # As in RocketMQ: a group that never fails has no retry topic, and that is no trouble.
        level = logging.DEBUG if owned.queue.topic.startswith(RETRY_PREFIX) else logging.WARNING
        _LOG.log(level, "group=%s %s: a pull failed: %s", self.settings.group, owned.queue, error)
        if isinstance(error, BrokerError) and error.code in _UNREGISTERED:
            self.on_unregistered()
        self._step_later(owned)

    def _on_committed_offset(self, owned: OwnedQueue, result: Reply | RocketMQError) -> None:
        """Continue at the committed offset: the previous owner may have consumed more."""
        group, offset = self.settings.group, None
        if isinstance(result, OffsetReply):
            offset = result.value
        elif isinstance(result, ProgressNotFoundError):
            offset = owned.process.next_begin
        else:
            _LOG.error("group=%s %s: no committed offset: %s", group, owned.queue, result)
        with owned.lock:
            before = owned.process.next_begin
            owned.control.on_reread(owned.process, offset, now_ms())
        if offset is not None:
            _LOG.info(
                "group=%s %s: the first pull under the lock: next offset %d, committed offset %d",
                group,
                owned.queue,
                before,
                offset,
            )
        if offset is not None and offset < before:
            _LOG.info("[NOTIFYME] %s: the next offset was larger than the committed", owned.queue)
        self._step(owned)
