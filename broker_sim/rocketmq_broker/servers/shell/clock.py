"""The broker's clock: the wall clock, but for steps back.

Store times never go back, and delays, timers, pops and held requests are measured against them. If
the wall clock steps back, or the store holds later times when the broker starts, this clock
continues from where it was, by the time that passes, until the wall clock has caught up. It follows
a step forward. Times that clients name are the wall clock's: `ahead_ms` is the difference.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

# A wall clock that is corrected by less is waited for: time stands still meanwhile.
_STEP_MS_MIN: Final = 1_000


class BrokerClock:
    """Milliseconds since 1970; never goes back. For one thread."""

    def __init__(
        self,
        start_ms: int = 0,
        *,
        wall_ns: Callable[[], int] = lambda: time.time_ns(),
        monotonic_ns: Callable[[], int] = lambda: time.monotonic_ns(),
    ) -> None:
        """`start_ms` is the newest time in the store."""
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._seen_ns = monotonic_ns()
        self._now_ns = max(wall_ns(), start_ms * 1_000_000)

    def now_ms(self) -> int:
        wall_ns, seen_ns = self._wall_ns(), self._monotonic_ns()
        continued_ns = self._now_ns + seen_ns - self._seen_ns
        self._seen_ns = seen_ns
        is_stepped = continued_ns - wall_ns >= _STEP_MS_MIN * 1_000_000
        self._now_ns = continued_ns if is_stepped else max(self._now_ns, wall_ns)
        return self._now_ns // 1_000_000

    def ahead_ms(self) -> int:
        """How far this clock is ahead of the wall clock."""
        return max(0, self.now_ms() - self._wall_ns() // 1_000_000)
