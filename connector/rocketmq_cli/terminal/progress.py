"""A line of progress on standard error, for people only: nothing is shown in a pipe or a log."""

from __future__ import annotations

import sys
import time

from rocketmq_wire.plural import plural

_INTERVAL_S = 0.2


class CountLine:
    """Shows how many messages are done, of how many if known, and how fast; redrawn in place."""

    def __init__(
        self,
        *,
        total: int | None = None,
        size_total: int | None = None,
        is_shown: bool = True,
        done: str = "",
    ) -> None:
        """`done` is said behind the count.

        `size_total` is the whole work in what `add` counts beside, where no total is known.
        """
        self._done = done
        self._total, self._size_total, self._size = total, size_total, 0
        self._began = self._shown = time.monotonic()
        self._is_shown = is_shown and sys.stderr.isatty()
        self.count = 0

    def add(self, count: int, size: int = 0) -> None:
        self.count += count
        self._size += size
        now = time.monotonic()
        if self._is_shown and now - self._shown >= _INTERVAL_S:
            self._shown = now
            print(f"\r{self.progress()}\x1b[K", end="", file=sys.stderr, flush=True)

    def progress(self) -> str:
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

    def close(self) -> None:
        """Clear the line."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _named(self, count: int) -> str:
        return plural(count, "message") + self._done

    def _rate(self) -> float:
        return self.count / max(time.monotonic() - self._began, 1e-3)


class StatusLine:
    """Says what long work is doing, redrawn in place."""

    def __init__(self) -> None:
        self._shown = 0.0
        self._is_shown = sys.stderr.isatty()

    def say(self, text: str) -> None:
        now = time.monotonic()
        if self._is_shown and now - self._shown >= _INTERVAL_S:
            self._shown = now
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
