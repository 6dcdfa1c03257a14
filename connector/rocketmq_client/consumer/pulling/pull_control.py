"""When to pull from one queue, and what an answer means: pure.

over a limit                 look again after 50 ms, or when enough is consumed
suspended                    after 1 s
orderly and not locked       after 3 s
nothing is subscribed to     after 3 s
an error                     after 3 s; after 20 ms when the broker controls the flow
offset expired               at once, at the first that is there
otherwise illegal            the queue is dropped, its progress corrected, and had again 10 s later
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
    """What to do about a queue now."""

    PULL = "ask for more"
    WAIT = "nothing before `not_before_ms`"
    REREAD = "the lock is new: read the group's progress again before the first pull"
    STOP = "the queue is another's"


class PullOutcome(enum.Enum):
    """What an answer to a pull means."""

    MESSAGES = "decode the body and hand it on"
    NOTHING = "go on at the offset that the answer names"
    ILLEGAL = "go on at another offset: the queue does not have this one"


@dataclass(slots=True)
class PullControl:
    """The pulls of one queue. `not_before_ms` says when a waiting one is looked at again."""

    limits: FlowLimits
    is_orderly: bool = False
    interval_ms: int = 0
    """Rest between two pulls."""
    not_before_ms: int = 0
    is_pulling: bool = False
    is_flow_blocked: bool = False
    flow_count: int = 0
    """How often a limit stood in the way."""
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
        """Decide; on PULL the pull counts as under way.

        `is_wanted` is False while nothing is subscribed to in the queue's topic; `is_full` is True
        when what waits in all queues together is too much.
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
        reason = "too much waits in all queues" if is_full else self.limits.exceeded(queue)
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
        """The group's progress under the new lock; None when it could not be read."""
        self.is_pulling = False
        if offset is None:
            self._wait(now_ms, ERROR_DELAY_MS)
            return
        self.is_first = False
        if not queue.count:
            queue.next_begin = offset

    def on_reply(self, reply: PullReply, now_ms: int) -> PullOutcome:
        """A pull was answered."""
        self.is_pulling = False
        self.not_before_ms = now_ms + self.interval_ms if self.interval_ms else 0
        if reply.status is PullStatus.OFFSET_ILLEGAL:
            return PullOutcome.ILLEGAL
        return PullOutcome.MESSAGES if reply.status is PullStatus.FOUND else PullOutcome.NOTHING

    def on_empty_reply(self, now_ms: int, waited_ms: int) -> None:
        """An answer without anything that came at once: such a broker does not hold pulls."""
        if waited_ms < EMPTY_REPLY_DELAY_MS:
            self._wait(now_ms, EMPTY_REPLY_DELAY_MS)

    def on_error(self, error: RocketMQError, now_ms: int) -> None:
        """A pull failed, or its answer could not be read."""
        self.is_pulling = False
        is_flow = isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL
        self._wait(now_ms, BROKER_FLOW_DELAY_MS if is_flow else ERROR_DELAY_MS)

    def on_consumed(self, queue: ProcessQueue) -> bool:
        """Something was consumed; True when that ends a wait, and the queue is worth a look."""
        if not self.is_flow_blocked or queue.count > self.limits.count_max // 2:
            return False
        if self.limits.exceeded(queue) is not None:
            return False
        self.is_flow_blocked = False
        self.not_before_ms = 0
        return True

    @property
    def flow_warning_is_due(self) -> bool:
        """True every thousand times: now and then a limit in the way is how it should be."""
        return self.is_flow_blocked and self.flow_count % FLOW_WARNING_EVERY == 0

    def _wait(self, now_ms: int, delay_ms: int) -> Step:
        self.not_before_ms = now_ms + delay_ms
        return Step.WAIT
