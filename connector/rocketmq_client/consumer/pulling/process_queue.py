"""One owned queue: messages pulled and not consumed yet, and when to pull more. Pure.

The consumed offset is the smallest pending offset. If nothing is pending, everything pulled is
consumed, so the consumed offset also moves where a filter let no message through.

    add -> pending -> (a listener consumes it) -> remove       offsets only grow
                   -> take: not pending, and consumed after `finish_taken`

over a limit                 pull after 50 ms, or when enough is consumed
messages found               at once, or after the pull interval
suspended                    after 1 s
orderly and not locked       after 3 s
topic not subscribed         after 3 s
an error                     after 3 s; after 20 ms if the broker controls the flow
offset expired               at once, at the first available offset
otherwise illegal            drop the queue, correct its committed offset, own it after 10 s
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import FlowLimits
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, RocketMQError

LOCK_AGE_MS_MAX: Final = 30_000
"""The age after which a queue lock is not trusted: soon another member may lock the queue."""
PULL_AGE_MS_MAX: Final = 120_000
"""The time without a pull after which a queue's pulls are restarted."""
FLOW_DELAY_MS: Final = 50
SUSPENDED_DELAY_MS: Final = 1_000
UNLOCKED_DELAY_MS: Final = 3_000
ERROR_DELAY_MS: Final = 3_000
BROKER_FLOW_DELAY_MS: Final = 20
EMPTY_REPLY_DELAY_MS: Final = 200
ILLEGAL_DELAY_MS: Final = 10_000
# A pull of fewer messages costs more than it brings.
_PULL_COUNT_MIN: Final = 32


@dataclass(slots=True)
class ProcessQueue:
    """Not thread-safe: `OwnedQueue.lock` guards it."""

    next_begin: int
    """The offset of the next pull: earlier messages were pulled or did not match the filter."""
    pending: dict[int, ReceivedMessage] = field(default_factory=dict)
    """Messages by offset, in the order of offsets."""
    size: int = 0
    """The size of the pending bodies in bytes."""
    taken_from: int | None = None
    """The consumed offset until taken messages are finished; None: none were taken."""
    is_dropped: bool = False
    """The member lost the queue: its messages are not consumed here, nor its offset committed."""
    is_locked: bool = False
    lock_ms: int = 0
    """When the broker last granted the queue's lock."""
    last_pull_ms: int = 0
    last_consume_ms: int = 0

    def add(self, messages: Sequence[ReceivedMessage], next_begin: int) -> None:
        """Add a pull's messages; `next_begin` is behind every offset that the pull covered."""
        pending, size = self.pending, self.size
        for message in messages:
            pending[message.queue_offset] = message
            size += len(message.body)
        self.size = size
        self.next_begin = max(self.next_begin, next_begin)

    def remove(self, messages: Iterable[ReceivedMessage]) -> None:
        """Remove messages that were consumed or sent back; ignores those not pending."""
        pending, size = self.pending, self.size
        for message in messages:
            if pending.pop(message.queue_offset, None) is not None:
                size -= len(message.body)
        self.size = size

    def take(self, messages: Iterable[ReceivedMessage]) -> None:
        """Remove messages from the flow limits; they count as consumed after `finish_taken`."""
        if self.taken_from is None:
            self.taken_from = self.consumed_offset
        self.remove(messages)

    def finish_taken(self) -> None:
        """Count all taken messages as consumed."""
        self.taken_from = None

    def first(self, count: int) -> list[ReceivedMessage]:
        """The first pending messages, which stay pending."""
        return list(itertools.islice(self.pending.values(), count))

    @property
    def count(self) -> int:
        return len(self.pending)

    @property
    def consumed_offset(self) -> int:
        """The smallest offset that is not consumed."""
        return self.waiting_from if self.taken_from is None else self.taken_from

    @property
    def waiting_from(self) -> int:
        """The smallest pending offset, or the offset of the next pull."""
        for offset in self.pending:
            return offset
        return self.next_begin

    def corrected(self, next_begin: int) -> int:
        """The offset to continue at if the broker's differs from ours.

        If the queue's end went back, messages that were pulled and not consumed may still exist.
        """
        return min(next_begin, self.consumed_offset) if next_begin < self.next_begin else next_begin

    @property
    def span(self) -> int:
        """The distance between the newest and the oldest pending offset."""
        if not self.pending:
            return 0
        return next(reversed(self.pending)) - next(iter(self.pending))

    def is_lock_valid(self, now_ms: int) -> bool:
        """The broker granted the lock recently enough."""
        return self.is_locked and now_ms - self.lock_ms <= LOCK_AGE_MS_MAX

    def is_pull_stale(self, now_ms: int) -> bool:
        return now_ms - self.last_pull_ms > PULL_AGE_MS_MAX

    def drop(self) -> None:
        """Stop consuming here: another member owns the queue."""
        self.is_dropped = True


class FlowLimit(enum.Enum):
    """The limits whose delays a consumer counts, each by itself."""

    QUEUE = "one queue's messages or bytes"
    SPAN = "one queue's span of offsets"
    CONSUMER = "the messages of all queues"


class Step(enum.Enum):
    PULL = "pull"
    WAIT = "wait until `not_before_ms`"
    SUSPENDED = "as WAIT, because the application paused it"
    UNWANTED = "as WAIT, because its topic is not subscribed"
    UNLOCKED = "as WAIT, because the broker did not grant the queue's lock"
    FLOW = "as WAIT, because a limit of waiting messages is exceeded"
    REREAD = "the lock is new: read the committed offset before the first pull"
    STOP = "the member lost the queue"


@dataclass(slots=True)
class PullControl:
    """The pulls of one queue; a waiting queue is checked at `not_before_ms`."""

    limits: FlowLimits
    is_orderly: bool = False
    interval_ms: int = 0
    """The pause behind a pull that found messages."""
    not_before_ms: int = 0
    is_pulling: bool = False
    exceeded: FlowLimit | None = None
    """The limit that delays the next pull."""
    is_first: bool = True

    def step(
        self,
        queue: ProcessQueue,
        now_ms: int,
        *,
        is_suspended: bool,
        is_wanted: bool = True,
        is_full: bool = False,
    ) -> Step:
        """Decide the next step; with PULL, a pull counts as sent.

        `is_wanted` is False while the queue's topic is not subscribed; `is_full` is True while too
        many messages wait in all queues together.
        """
        if queue.is_dropped:
            return Step.STOP
        if self.is_pulling or now_ms < self.not_before_ms:
            return Step.WAIT
        queue.last_pull_ms = now_ms
        if is_suspended:
            return self._wait(now_ms, SUSPENDED_DELAY_MS, Step.SUSPENDED)
        if not is_wanted:
            return self._wait(now_ms, UNLOCKED_DELAY_MS, Step.UNWANTED)
        self.exceeded = FlowLimit.CONSUMER if is_full else self._exceeded(queue)
        if self.exceeded is not None:
            return self._wait(now_ms, FLOW_DELAY_MS, Step.FLOW)
        if self.is_orderly:
            if not queue.is_lock_valid(now_ms):
                self.is_first = True
                return self._wait(now_ms, UNLOCKED_DELAY_MS, Step.UNLOCKED)
            if self.is_first:
                self.is_pulling = True
                return Step.REREAD
        self.is_pulling = True
        return Step.PULL

    def on_reread(self, queue: ProcessQueue, offset: int | None, now_ms: int) -> None:
        """Take the committed offset that was read under the new lock; None if the read failed."""
        self.is_pulling = False
        if offset is None:
            self._wait(now_ms, ERROR_DELAY_MS)
            return
        self.is_first = False
        if not queue.count:
            queue.next_begin = offset

    def on_reply(self) -> None:
        self.is_pulling = False
        self.not_before_ms = 0

    def on_found(self, now_ms: int) -> None:
        """Pause behind a pull that found messages."""
        if self.interval_ms:
            self._wait(now_ms, self.interval_ms)

    def on_empty_reply(self, now_ms: int, waited_ms: int) -> None:
        """Wait after an empty reply that came at once: such a broker does not hold pulls."""
        if waited_ms < EMPTY_REPLY_DELAY_MS:
            self._wait(now_ms, EMPTY_REPLY_DELAY_MS)

    def on_error(self, error: RocketMQError, now_ms: int) -> None:
        """Wait after a failed pull or an unreadable reply."""
        self.is_pulling = False
        is_flow = isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL
        self._wait(now_ms, BROKER_FLOW_DELAY_MS if is_flow else ERROR_DELAY_MS)

    def on_consumed(self, queue: ProcessQueue) -> bool:
        """Check the limits after consumption; True if a waiting queue may be pulled from now."""
        if self.exceeded is None or queue.count > self.limits.count_max // 2:
            return False
        if self._exceeded(queue) is not None:
            return False
        self.exceeded = None
        self.not_before_ms = 0
        return True

    def room(self, queue: ProcessQueue, batch_size: int) -> int:
        """How many messages to pull: as many as exceed the limit, but not a tiny number.

        A queue at its limit would be pulled from in tiny steps, each as its messages are consumed.
        """
        return min(batch_size, max(self.limits.count_max + 1 - queue.count, _PULL_COUNT_MIN))

    def _exceeded(self, queue: ProcessQueue) -> FlowLimit | None:
        limits = self.limits
        if queue.count > limits.count_max or queue.size > limits.size_max:
            return FlowLimit.QUEUE
        if limits.span_max is not None and queue.count and queue.span > limits.span_max:
            return FlowLimit.SPAN
        return None

    def _wait(self, now_ms: int, delay_ms: int, step: Step = Step.WAIT) -> Step:
        self.not_before_ms = now_ms + delay_ms
        return step
