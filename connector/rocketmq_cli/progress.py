"""A line of progress on standard error, for people only: nothing is shown in a pipe or a log."""

from __future__ import annotations

import sys
import time

_INTERVAL_S = 0.2


class CountLine:
    """Shows how many are done and how fast, redrawn in place."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = self._shown = time.monotonic()
        self._is_shown = sys.stderr.isatty()
        self.count = 0

    def add(self, count: int) -> None:
        self.count += count
        now = time.monotonic()
        if self._is_shown and now - self._shown >= _INTERVAL_S:
            self._shown = now
            print(f"\r{self.summary()}\x1b[K", end="", file=sys.stderr, flush=True)

    def summary(self) -> str:
        """`12,000 messages, 40,000/s`."""
        seconds = max(time.monotonic() - self._began, 1e-3)
        return f"{self.count:,} {self._what}, {self.count / seconds:,.0f}/s"

    def close(self) -> None:
        """Clear the line."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


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
