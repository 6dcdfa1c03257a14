"""The broker's clock: the wall clock, but for steps back; and the time that a call takes at once.

Store times never go back, and delays, timers, pops and held requests are measured against them. If
the wall clock steps back, or the store holds later times when the broker starts, this clock
continues from where it was, by the time that passes, until the wall clock has caught up. It follows
a step forward. Times that clients name are the wall clock's: `ahead_ms` is the difference.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

# A wall clock that is corrected by less is waited for: time stands still meanwhile.
_STEP_MS_MIN: Final = 1_000
_SLICE_SECONDS: Final = 0.01


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

    def wall_ms(self) -> int:
        """The time by the wall clock."""
        return self._wall_ns() // 1_000_000

    def ahead_ms(self) -> int:
        """How far this clock is ahead of the wall clock."""
        return max(0, self.now_ms() - self.wall_ms())


class TimeSlices:
    """Divides a long call, so that the loop serves others in between."""

    def __init__(self) -> None:
        self._ends_at = time.monotonic() + _SLICE_SECONDS

    async def pause(self) -> None:
        """Let others run if this slice takes long."""
        if time.monotonic() >= self._ends_at:
            await asyncio.sleep(0)
            self._ends_at = time.monotonic() + _SLICE_SECONDS
