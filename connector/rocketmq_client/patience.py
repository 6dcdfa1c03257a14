"""How long a download has been in trouble, and when it may ask again: pure.

Two troubles are told apart. *Stuck* is no progress, whatever the broker answers; *silent* is no
answer at all, or only pleas to slow down. Both are counted from the last good moment, and end a
download once they have lasted as long as an outage may.
"""

from __future__ import annotations

from rocketmq_client.retry import Backoff


class Patience:
    """The clocks of one range; times are milliseconds."""

    __slots__ = (
        "_answer_ms",
        "_backoff",
        "_outage_ms",
        "_progress_ms",
        "_silent_since_ms",
        "_stuck_since_ms",
        "not_before_ms",
    )

    def __init__(self, outage_ms: int, backoff: Backoff) -> None:
        self._outage_ms = outage_ms
        self._backoff = backoff
        self.not_before_ms = 0
        """Nothing is to be asked before."""
        self._progress_ms: int | None = None
        self._answer_ms: int | None = None
        self._stuck_since_ms: int | None = None
        self._silent_since_ms: int | None = None

    def trouble(self, sent_ms: int, now_ms: int) -> None:
        """What was sent at `sent_ms` brought nothing."""
        if self._stuck_since_ms is None:
            self._stuck_since_ms = _latest(sent_ms, self._progress_ms, now_ms)

    def silence(self, sent_ms: int, now_ms: int) -> None:
        """What was sent at `sent_ms` was not answered."""
        if self._silent_since_ms is None:
            self._silent_since_ms = _latest(sent_ms, self._answer_ms, now_ms)

    def answered(self, now_ms: int) -> None:
        """The broker spoke."""
        self._answer_ms = now_ms
        self._silent_since_ms = None

    def progressed(self, now_ms: int) -> None:
        """Something new arrived."""
        self._progress_ms = now_ms
        self._stuck_since_ms = None
        self.not_before_ms = 0
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

    def is_silent(self, now_ms: int) -> bool:
        """No answer for as long as an outage may last."""
        return self._is_over(self._silent_since_ms, now_ms)

    def _is_over(self, since_ms: int | None, now_ms: int) -> bool:
        return since_ms is not None and now_ms - since_ms >= self._outage_ms


def _latest(sent_ms: int, seen_ms: int | None, now_ms: int) -> int:
    """When a trouble began: the failed request may be older than the last good moment."""
    return min(now_ms, sent_ms if seen_ms is None else max(sent_ms, seen_ms))
