"""A clock that runs only while the caller is inside the transport.

Spark may hold a download's generator suspended for minutes while it works. That time must count
towards no deadline and no outage, or a slow consumer would look like a dead broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ActiveClock:
    """Counts milliseconds inside; nesting counts once."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._monotonic_ns = monotonic_ns
        self._outside_ns = 0
        self._left_at_ns = monotonic_ns()
        self._depth = 0

    def now_ms(self) -> int:
        """Return the time, which stands still outside."""
        now_ns = self._monotonic_ns() if self._depth else self._left_at_ns
        return (now_ns - self._outside_ns) // 1_000_000

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Run the clock for the length of a `with`."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        """Start the clock."""
        if not self._depth:
            self._outside_ns += self._monotonic_ns() - self._left_at_ns
        self._depth += 1

    def leave(self) -> None:
        """Stop the clock."""
        self._depth -= 1
        if not self._depth:
            self._left_at_ns = self._monotonic_ns()
