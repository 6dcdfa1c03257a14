"""A clock that runs only while the caller is inside the transport.

Spark may hold a download's generator suspended for minutes while it works. That time must count
towards no deadline and no outage, or a slow consumer would look like a dead broker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rocketmq_wire.errors import RocketMQError, TransportError

_FIRST_WAIT_MS: Final = 5_000
_NEXT_WAIT_MS: Final = 30_000


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
        if not self._depth:
            self._outside_ns += self._monotonic_ns() - self._left_at_ns
        self._depth += 1

    def leave(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._left_at_ns = self._monotonic_ns()


class OutageLog:
    """Logs the begin and the end of each outage that a download waits for, and long waits."""

    def __init__(self, logger: logging.Logger, outage_ms: int) -> None:
        """`outage_ms` is the longest outage that the download waits for."""
        self._logger = logger
        self._outage_ms = outage_ms
        self._since_ms: dict[str, int] = {}
        """Since when each unreachable broker has been logged."""
        self._waits_since_ms: int | None = None
        self._wait_is_due_ms = 0

    def log(self, error: RocketMQError, now_ms: int, broker: str = "the broker") -> None:
        """Log an outage once, and for how long the download waits."""
        if isinstance(error, TransportError) and broker not in self._since_ms:
            self._since_ms[broker] = now_ms
            outage_s = self._outage_ms / 1_000
            self._logger.warning("waiting for %s for up to %.0f s: %s", broker, outage_s, error)

    def log_wait(self, now_ms: int, waits_for: Callable[[], str]) -> None:
        """Log what a download has waited for since its last chunk: after 5 s, and each 30 s."""
        if self._waits_since_ms is None:
            self._waits_since_ms = now_ms
            self._wait_is_due_ms = now_ms + _FIRST_WAIT_MS
        elif now_ms >= self._wait_is_due_ms:
            self._wait_is_due_ms = now_ms + _NEXT_WAIT_MS
            waited_s = (now_ms - self._waits_since_ms) / 1_000
            self._logger.warning("waited %.0f s for %s", waited_s, waits_for())

    def end_wait(self) -> None:
        """Note a chunk: the next wait begins later."""
        self._waits_since_ms = None

    def log_recovery(self, now_ms: int, broker: str = "the broker") -> None:
        """Log the end of an outage that was logged."""
        if not self._since_ms:
            return
        since_ms = self._since_ms.pop(broker, None)
        if since_ms is not None:
            outage_s = (now_ms - since_ms) / 1_000
            self._logger.warning(
                "%s answers again after %.1f s, the download resumes", broker, outage_s
            )
