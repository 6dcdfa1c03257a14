"""The one way to wait for a cluster: a policy, its delays, and one loop.

RetryPolicy   how long to pause, and when to give up; `retry_schedules` has one for every use
Backoff       the pauses of failures in a row: pure
OutageClock   the limits of a download, for code that may not block: pure, given the time
Retry         the loop for code that may block; tests give it a clock of their own
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from rocketmq_wire.errors import DeadlineExceededError, RocketMQError
from rocketmq_wire.model import QueueId

T = TypeVar("T")

_LOG_INTERVAL_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Pauses between tries, and the limits of both. Raises ValueError."""

    first_delay_ms: int
    delay_ms_max: int
    factor: int = 2
    """The growth of the pause with each failure in a row."""
    jitter: float = 0.25
    """The share of a pause that chance may take off: tasks of one job must not come back to a
    restarted broker all at once."""
    limit_ms: int | None = None
    """The time after which no further try begins; None: there is none."""
    tries_max: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.first_delay_ms <= self.delay_ms_max:
            raise ValueError(
                f"not a range of delays: {self.first_delay_ms} to {self.delay_ms_max} ms"
            )
        if not (self.factor >= 1 and 0 <= self.jitter < 1):
            raise ValueError(f"not a factor and a jitter: {self.factor} and {self.jitter}")

    def within(self, limit_ms: int, delay_ms_max: int | None = None) -> RetryPolicy:
        """The same policy with a limit, and with no pause above `delay_ms_max`."""
        longest = min(self.delay_ms_max, delay_ms_max or self.delay_ms_max)
        first = min(self.first_delay_ms, longest)
        return replace(self, first_delay_ms=first, delay_ms_max=longest, limit_ms=limit_ms)

    def delay_ms(self, failures: int) -> int:
        """The pause after a number of failures in a row, without jitter."""
        # The exponent is capped: thousands of failures would make a huge integer.
        growth: int = self.factor ** min(failures - 1, 30)
        return min(self.first_delay_ms * growth, self.delay_ms_max)

    def is_over(self, since_ms: int, now_ms: int) -> bool:
        """Whether failures that began at `since_ms` have lasted for as long as they may."""
        return self.limit_ms is not None and now_ms - since_ms >= self.limit_ms


class Backoff:
    """The pauses of failures in a row: each is longer, and one success makes them short again."""

    __slots__ = ("_failures", "_randint", "policy")

    def __init__(
        self, policy: RetryPolicy, randint: Callable[[int, int], int] = random.randint
    ) -> None:
        """`randint` draws the jitter. The process's own differs in every forked worker."""
        self.policy = policy
        self._randint = randint
        self._failures = 0

    @property
    def failures(self) -> int:
        return self._failures

    def next_delay_ms(self) -> int:
        """Count one more failure, and return the pause after it."""
        self._failures += 1
        full = self.policy.delay_ms(self._failures)
        return max(1, full - self._randint(0, int(full * self.policy.jitter)))

    def reset(self) -> None:
        self._failures = 0


class OutageClock:
    """How long a download has been failing, and when it may ask again; times are milliseconds.

    A download is *stuck* while it makes no progress, whatever the broker answers. It is *silent*
    while no answer comes at all, or only requests to slow down. Both count from the last good
    moment, and end the download when the policy's limit is reached: with the last error, if there
    was one.
    """

    __slots__ = (
        "_answer_ms",
        "_backoff",
        "_progress_ms",
        "_silent_since_ms",
        "_stuck_since_ms",
        "last_error",
        "last_remark",
        "not_before_ms",
    )

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self.not_before_ms = 0
        """The time before which nothing is asked."""
        self.last_error: RocketMQError | None = None
        """The last error since something new arrived."""
        self.last_remark = ""
        """The remark in the broker's last answer."""
        self._progress_ms: int | None = None
        self._answer_ms: int | None = None
        self._stuck_since_ms: int | None = None
        self._silent_since_ms: int | None = None

    @property
    def last_word(self) -> str:
        """What the broker last answered, for the log of a wait."""
        if self.last_error is not None:
            return str(self.last_error)
        is_stuck = self._stuck_since_ms is not None
        return f"the broker says '{self.last_remark}'" if is_stuck else "no answer yet"

    def trouble(self, sent_ms: int, now_ms: int) -> None:
        """Note that a request sent at `sent_ms` brought nothing."""
        if self._stuck_since_ms is None:
            self._stuck_since_ms = _latest(sent_ms, self._progress_ms, now_ms)

    def answered(self, now_ms: int) -> None:
        self._answer_ms = now_ms
        self._silent_since_ms = None

    def progressed(self, now_ms: int) -> None:
        """Note that something new arrived."""
        self._progress_ms = now_ms
        self._stuck_since_ms = None
        self.not_before_ms = 0
        self.last_error = None
        self._backoff.reset()

    def back_off(self, now_ms: int) -> None:
        """Ask again later. All pulls of a broken connection fail at once and count as one."""
        if now_ms >= self.not_before_ms:
            self.not_before_ms = now_ms + self._backoff.next_delay_ms()

    def pause(self, until_ms: int) -> None:
        self.not_before_ms = max(self.not_before_ms, until_ms)

    def is_stuck(self, now_ms: int) -> bool:
        """Whether the limit has passed without progress."""
        return self._is_over(self._stuck_since_ms, now_ms)

    def raise_if_stuck(self, queue: QueueId, offset: int, now_ms: int) -> None:
        """Raise the last error, or DeadlineExceededError, if it is stuck at an offset."""
        if not self.is_stuck(now_ms):
            return
        if self.last_error is not None:
            raise self.last_error
        raise DeadlineExceededError(
            str(queue),
            f"no progress at offset {offset} for {self._backoff.policy.limit_ms} ms, "
            f"the last answer said '{self.last_remark}'",
        )

    def raise_if_silent(self, sent_ms: int, error: RocketMQError, now_ms: int) -> None:
        """Raise the error of a request sent at `sent_ms` if the limit has passed in silence."""
        if self._silent_since_ms is None:
            self._silent_since_ms = _latest(sent_ms, self._answer_ms, now_ms)
        if self._is_over(self._silent_since_ms, now_ms):
            raise error

    def _is_over(self, since_ms: int | None, now_ms: int) -> bool:
        return since_ms is not None and self._backoff.policy.is_over(since_ms, now_ms)


def _latest(sent_ms: int, seen_ms: int | None, now_ms: int) -> int:
    """When a failure began: the failed request may be older than the last good moment."""
    return min(now_ms, sent_ms if seen_ms is None else max(sent_ms, seen_ms))


@dataclass(frozen=True, slots=True)
class Clock:
    """The time, and how to let it pass."""

    now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    sleep_ms: Callable[[int], None] = lambda ms: time.sleep(ms / 1_000)


SYSTEM_CLOCK: Final = Clock()


class Retry:
    """The tries of one piece of work, from when it is made until its policy's limit."""

    def __init__(
        self, policy: RetryPolicy, clock: Clock = SYSTEM_CLOCK, *, log: logging.Logger | None = None
    ) -> None:
        """`log` reports the first failure, one each 30 s, and the success after failures."""
        self._policy = policy
        self._clock = clock
        self._log = log
        self._backoff = Backoff(policy)
        self._began_ms = clock.now_ms()
        self._logged_ms = 0

    @property
    def failures(self) -> int:
        return self._backoff.failures

    @property
    def waited_ms(self) -> int:
        """The time since the work began, or since the last `reset`."""
        return self._clock.now_ms() - self._began_ms

    @property
    def is_over(self) -> bool:
        """Whether no further try may begin."""
        tries_max = self._policy.tries_max
        is_last = tries_max is not None and self.failures >= tries_max
        return is_last or self._policy.is_over(self._began_ms, self._clock.now_ms())

    def pause(self, error: RocketMQError | None = None) -> bool:
        """Pause before the next try; False if there is none, or if none can help.

        The last pause is cut, so that the last try is made when the limit is reached.
        """
        delay_ms = self._backoff.next_delay_ms()
        if self.is_over or (error is not None and not error.retryable):
            return False
        if self._policy.limit_ms is not None:
            delay_ms = min(delay_ms, self._policy.limit_ms - self.waited_ms)
        is_due = self.failures == 1 or self._clock.now_ms() - self._logged_ms >= _LOG_INTERVAL_MS
        if is_due and self._log is not None and error is not None:
            self._logged_ms = self._clock.now_ms()
            waited_ms = 0 if self.failures == 1 else self.waited_ms
            left_s = ((self._policy.limit_ms or 0) - waited_ms) / 1_000
            self._log.warning("asking again for up to %.0f s: %s", max(0, left_s), error)
        self._clock.sleep_ms(max(0, delay_ms))
        return True

    def reset(self) -> None:
        """Note a success: the limit counts from now on."""
        if self.failures and self._log is not None:
            self._log.warning("answered after %.1f s, resuming", self.waited_ms / 1_000)
        self._backoff.reset()
        self._began_ms = self._clock.now_ms()

    def call(
        self,
        work: Callable[[], T],
        judge: Callable[[RocketMQError], RocketMQError] = lambda error: error,
    ) -> T:
        """Do the work until it succeeds. Raises its last error.

        `judge` may replace an error by one that says whether trying again helps.
        """
        while True:
            try:
                result = work()
            except RocketMQError as error:  # noqa: PERF203 - each try takes a network's time.
                if not self.pause(judge(error)):
                    raise
            else:
                self.reset()
                return result
