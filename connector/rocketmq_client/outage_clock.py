"""How long a download has been in trouble, and when it may ask again: pure.

Two troubles are told apart. *Stuck* is no progress, whatever the broker answers; *silent* is no
answer at all, or only pleas to slow down. Both are counted from the last good moment, and end a
download once they have lasted as long as an outage may: with the last error, if there was one.
"""

from __future__ import annotations

from typing import Final

from rocketmq_client.retry import Backoff
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import (
    BrokerError,
    DeadlineExceededError,
    FilterUnsupportedError,
    RocketMQError,
)
from rocketmq_wire.model import QueueId

# "queueId is illegal" before and since 5.3.2; 1 is also every exception in the broker.
_DOUBTFUL_CODES: Final = frozenset(
    {ResponseCode.SYSTEM_ERROR, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER}
)


def is_doubtful(error: RocketMQError) -> bool:
    """True for a refusal that may mean that the queue is gone: its bounds have to be looked at."""
    if isinstance(error, FilterUnsupportedError):
        return False  # Also code 1, but no time changes it.
    return isinstance(error, BrokerError) and error.code in _DOUBTFUL_CODES


class OutageClock:
    """The clocks of one range; times are milliseconds."""

    __slots__ = (
        "_answer_ms",
        "_backoff",
        "_outage_ms",
        "_progress_ms",
        "_silent_since_ms",
        "_stuck_since_ms",
        "last_error",
        "last_remark",
        "not_before_ms",
    )

    def __init__(self, outage_ms: int, backoff: Backoff) -> None:
        self._outage_ms = outage_ms
        self._backoff = backoff
        self.not_before_ms = 0
        """Nothing is to be asked before."""
        self.last_error: RocketMQError | None = None
        """The last one since something new arrived."""
        self.last_remark = ""
        """What the broker said in its last answer."""
        self._progress_ms: int | None = None
        self._answer_ms: int | None = None
        self._stuck_since_ms: int | None = None
        self._silent_since_ms: int | None = None

    def trouble(self, sent_ms: int, now_ms: int) -> None:
        """What was sent at `sent_ms` brought nothing."""
        if self._stuck_since_ms is None:
            self._stuck_since_ms = _latest(sent_ms, self._progress_ms, now_ms)

    def answered(self, now_ms: int) -> None:
        """The broker spoke."""
        self._answer_ms = now_ms
        self._silent_since_ms = None

    def progressed(self, now_ms: int) -> None:
        """Something new arrived."""
        self._progress_ms = now_ms
        self._stuck_since_ms = None
        self.not_before_ms = 0
        self.last_error = None
        self._backoff.reset()

    def back_off(self, now_ms: int) -> None:
        """Ask again later. All pulls of a broken connection fail at once: they count as one."""
        if now_ms >= self.not_before_ms:
            self.not_before_ms = now_ms + self._backoff.next_delay_ms()

    def pause(self, until_ms: int) -> None:
        """Ask again at a given time."""
        self.not_before_ms = max(self.not_before_ms, until_ms)

    def is_stuck(self, now_ms: int) -> bool:
        """No progress for as long as an outage may last."""
        return self._is_over(self._stuck_since_ms, now_ms)

    def raise_if_stuck(self, queue: QueueId, offset: int, now_ms: int) -> None:
        """Raise the last error, or DeadlineExceededError, when it is stuck at an offset."""
        if not self.is_stuck(now_ms):
            return
        if self.last_error is not None:
            raise self.last_error
        raise DeadlineExceededError(
            str(queue),
            f"no progress at offset {offset} for {self._outage_ms} ms, "
            f"the last answer said '{self.last_remark}'",
        )

    def raise_if_silent(self, sent_ms: int, error: RocketMQError, now_ms: int) -> None:
        """What was sent at `sent_ms` failed: raise its error once nothing has come for too long."""
        if self._silent_since_ms is None:
            self._silent_since_ms = _latest(sent_ms, self._answer_ms, now_ms)
        if self._is_over(self._silent_since_ms, now_ms):
            raise error

    def _is_over(self, since_ms: int | None, now_ms: int) -> bool:
        return since_ms is not None and now_ms - since_ms >= self._outage_ms


def _latest(sent_ms: int, seen_ms: int | None, now_ms: int) -> int:
    """When a trouble began: the failed request may be older than the last good moment."""
    return min(now_ms, sent_ms if seen_ms is None else max(sent_ms, seen_ms))
