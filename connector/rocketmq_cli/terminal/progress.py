"""Progress lines on standard error, for terminals only: pipes and logs get nothing."""

from __future__ import annotations

import sys
import time

from rocketmq_wire.plural import plural

_INTERVAL_S = 0.2


class _Line:
    """A line that is redrawn in place, at most five times a second."""

    def __init__(self, *, is_shown: bool = True, shown_at: float = 0.0) -> None:
        self._is_shown = is_shown and sys.stderr.isatty()
        self._shown_at = shown_at

    def _is_due(self) -> bool:
        now = time.monotonic()
        if not self._is_shown or now - self._shown_at < _INTERVAL_S:
            return False
        self._shown_at = now
        return True

    def close(self) -> None:
        if self._is_shown:
            _draw("")


class CountLine(_Line):
    """Shows how many messages are done, of how many if known, and how fast."""

    def __init__(
        self,
        *,
        total: int | None = None,
        size_total: int | None = None,
        is_shown: bool = True,
        done: str = "",
    ) -> None:
        """`done` follows the count.

        `size_total` is the sum of the sizes for `add`, if no total is known.
        """
        self._began = time.monotonic()
        super().__init__(is_shown=is_shown, shown_at=self._began)
        self._done = done
        self._total = total
        self._size_total = size_total
        self._size = 0
        self.count = 0

    def add(self, count: int, size: int = 0) -> None:
        self.count += count
        self._size += size
        if self._is_due():
            _draw(self.text())

    def text(self) -> str:
        """`12,000 of 50,000 messages, 40,000/s`, or `12,000 messages (24 %), 40,000/s`."""
        if self._total is not None:
            return f"{self.count:,} of {self._named(self._total)}, {self._rate():,.0f}/s"
        if self._size_total:
            share = min(100, self._size * 100 // self._size_total)
            return f"{self._named(self.count)} ({share} %), {self._rate():,.0f}/s"
        return self.summary()

    def summary(self) -> str:
        """`12,000 messages, 40,000/s`."""
        return f"{self._named(self.count)}, {self._rate():,.0f}/s"

    def _named(self, count: int) -> str:
        return plural(count, "message") + self._done

    def _rate(self) -> float:
        return self.count / max(time.monotonic() - self._began, 1e-3)


class StatusLine(_Line):
    """Shows the present step of long work."""

    def say(self, text: str) -> None:
        if self._is_due():
            _draw(text)


def _draw(text: str) -> None:
    print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
