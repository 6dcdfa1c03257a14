"""Decides when to pull from one queue, and what a reply means: pure.

over a limit                 pull after 50 ms, or when enough is consumed
suspended                    after 1 s
orderly and not locked       after 3 s
topic not subscribed         after 3 s
an error                     after 3 s; after 20 ms if the broker controls the flow
offset expired               at once, at the first available offset
otherwise illegal            drop the queue, correct its committed offset, own it after 10 s
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from rocketmq_client.consumer.common.flow_limits import FlowLimits
from rocketmq_client.consumer.pulling.process_queue import ProcessQueue
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, RocketMQError
from rocketmq_wire.requests.messages import PullReply, PullStatus

FLOW_DELAY_MS: Final = 50
SUSPENDED_DELAY_MS: Final = 1_000
UNLOCKED_DELAY_MS: Final = 3_000
ERROR_DELAY_MS: Final = 3_000
BROKER_FLOW_DELAY_MS: Final = 20
EMPTY_REPLY_DELAY_MS: Final = 200
ILLEGAL_DELAY_MS: Final = 10_000
FLOW_WARNING_EVERY: Final = 1_000


class Step(enum.Enum):
    """The next step for a queue."""

    PULL = "pull"
    WAIT = "wait until `not_before_ms`"
    REREAD = "the lock is new: read the committed offset before the first pull"
    STOP = "the member lost the queue"


class PullOutcome(enum.Enum):
    """The meaning of a pull's reply."""

    MESSAGES = "decode the bodies"
    NOTHING = "continue at the reply's next offset"
    ILLEGAL = "continue at another offset: the queue does not have this one"


@dataclass(slots=True)
class PullControl:
    """The pulls of one queue; a waiting queue is checked at `not_before_ms`."""

    limits: FlowLimits
    is_orderly: bool = False
    interval_ms: int = 0
    """The pause between two pulls."""
    not_before_ms: int = 0
    is_pulling: bool = False
    is_flow_blocked: bool = False
    flow_count: int = 0
    """The number of pulls that a limit delayed."""
    flow_reason: str = ""
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
            return self._wait(now_ms, SUSPENDED_DELAY_MS)
        if not is_wanted:
            return self._wait(now_ms, UNLOCKED_DELAY_MS)
        reason = "too many messages wait in all queues" if is_full else self.limits.exceeded(queue)
        if reason is not None:
            self.flow_count += 1
            self.flow_reason = reason
            self.is_flow_blocked = True
            return self._wait(now_ms, FLOW_DELAY_MS)
        self.is_flow_blocked = False
        if self.is_orderly:
            if not queue.is_lock_valid(now_ms):
                self.is_first = True
                return self._wait(now_ms, UNLOCKED_DELAY_MS)
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

    def on_reply(self, reply: PullReply, now_ms: int) -> PullOutcome:
        """Interpret a reply."""
        self.is_pulling = False
        self.not_before_ms = now_ms + self.interval_ms if self.interval_ms else 0
        if reply.status is PullStatus.OFFSET_ILLEGAL:
            return PullOutcome.ILLEGAL
        return PullOutcome.MESSAGES if reply.status is PullStatus.FOUND else PullOutcome.NOTHING

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
        if not self.is_flow_blocked or queue.count > self.limits.count_max // 2:
            return False
        if self.limits.exceeded(queue) is not None:
            return False
        self.is_flow_blocked = False
        self.not_before_ms = 0
        return True

    @property
    def flow_warning_is_due(self) -> bool:
        """True for every thousandth delay: single delays are normal."""
        return self.is_flow_blocked and self.flow_count % FLOW_WARNING_EVERY == 0

    def _wait(self, now_ms: int, delay_ms: int) -> Step:
        self.not_before_ms = now_ms + delay_ms
        return Step.WAIT
