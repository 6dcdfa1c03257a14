"""How long to wait before asking again: pure, with seeded jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Delays that double from `delay_ms` to `delay_ms_max`, each shortened by up to a quarter.

    The jitter keeps the workers of one job from knocking at a restarted broker all at once.
    """

    delay_ms: int = 100
    delay_ms_max: int = 3_000
    random: random.Random = field(default_factory=lambda: random.Random(0))
    _failures: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.delay_ms <= self.delay_ms_max:
            raise ValueError(f"not a range of delays: {self.delay_ms} to {self.delay_ms_max} ms")

    @property
    def failures(self) -> int:
        """How often it failed in a row."""
        return self._failures

    def next_delay_ms(self) -> int:
        """Count one more failure and say how long to wait."""
        # The exponent is capped: a shift by thousands would build huge integers.
        full = min(self.delay_ms << min(self._failures, 30), self.delay_ms_max)
        self._failures += 1
        return max(1, full - self.random.randint(0, full // 4))

    def reset(self) -> None:
        """It worked: the next delay is a short one again."""
        self._failures = 0
