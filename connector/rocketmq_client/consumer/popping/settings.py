"""What can be set on the popping of a push consumer, with RocketMQ's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RETRY_SECONDS: Final = (
    *(10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200),
)
"""How long a message waits after its first, second, ... failure."""


@dataclass(frozen=True, slots=True)
class PopSettings:
    """Raises ValueError for what cannot be used."""

    invisible_ms: int = 60_000
    """How long listeners have for a message before it comes again."""
    batch_size: int = 32
    pending_max: int = 96
    """With more messages of one queue, or of one broker's queues, waiting, none are popped."""
    poll_ms: int = 15_000
    retry_seconds: tuple[int, ...] = RETRY_SECONDS

    def __post_init__(self) -> None:
        for name, low, high in (
            ("invisible_ms", 1_000, 300_000),
            ("batch_size", 1, 32),
            ("pending_max", 1, 100_000),
            ("poll_ms", 0, 60_000),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must be {low} to {high}, got {value}")
        if not self.retry_seconds or min(self.retry_seconds) < 0:
            raise ValueError("retry_seconds must name a wait for each failure, 0 or more")

    def retry_ms(self, attempts: int, delay_level: int = 0) -> int:
        """How long a failed message waits: by a listener's word, else by its attempts."""
        step = delay_level if delay_level > 0 else attempts
        return self.retry_seconds[min(step, len(self.retry_seconds) - 1)] * 1_000
