"""Asking again while a cluster is away: for how long, how often, and what is said meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError, TransportError

T = TypeVar("T")

_log = logging.getLogger("pyspark_rocketmq")

_PAUSE_MS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class WallClock:
    """What waiting needs of the world; tests give their own."""

    now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    sleep_ms: Callable[[int], None] = lambda ms: time.sleep(ms / 1_000)


class ClusterUnreachableError(TransportError):
    """A read cannot be planned: the cluster was asked for as long as planning may take.

    `address` is the one that failed last, `where` what the user gave.
    """

    def __init__(self, where: str, address: str, reason: str, tries: int, waited_ms: int) -> None:
        super().__init__(address, reason)
        self.args = (where, address, reason, tries, waited_ms)
        self.where, self.tries, self.waited_ms = where, tries, waited_ms

    def __str__(self) -> str:
        times = "once" if self.tries == 1 else f"{self.tries} times"
        return (
            f"[ROCKETMQ_CONNECTION.UNREACHABLE] {self.where}: {self.address} does not answer "
            f"({self.reason}). Asked {times} in {self.waited_ms / 1_000:.1f} s. Check the address, "
            "and that the name server and the brokers are up; where brokers advertise an address "
            "that is not reachable from here, give addressMap. Raise connectTimeoutMs to wait "
            "longer."
        )


class ReadOutageError(TransportError):
    """A running read has waited for its broker for as long as it may. `last` says what for."""

    def __init__(self, last: TransportError, waited_ms: int) -> None:
        super().__init__(last.address, last.reason)
        self.args = (last, waited_ms)
        self.last, self.waited_ms = last, waited_ms

    def __str__(self) -> str:
        return (
            f"{self.last} The read waited for {self.waited_ms / 1_000:.0f} s (retry.outageMs). A "
            "streaming query that is started again goes on from its checkpoint."
        )


class Outage:
    """Failures in a row, and whether to try again: for `patience_ms` from when it was made."""

    def __init__(self, patience_ms: int, pause_ms: int, clock: WallClock | None = None) -> None:
        self._clock = clock or WallClock()
        self._patience_ms = patience_ms
        self._pause_ms = min(pause_ms, _PAUSE_MS_MAX)
        self._began_ms = self._clock.now_ms()
        self.tries = 0
        """How often it failed."""

    @property
    def waited_ms(self) -> int:
        """How long it has lasted."""
        return self._clock.now_ms() - self._began_ms

    def endure(self, error: RocketMQError) -> bool:
        """Pause before the next try; False when that cannot help or all patience is used up."""
        self.tries += 1
        left_ms = self._patience_ms - self.waited_ms
        if not error.retryable or left_ms <= 0:
            return False
        if self.tries == 1:
            _log.warning("asking again for up to %.0f s: %s", self._patience_ms / 1_000, error)
        self._clock.sleep_ms(min(self._pause_ms, left_ms))
        return True

    def end(self) -> None:
        """It answered: say so, if it was told that it did not."""
        if self.tries:
            _log.warning("answered after %.1f s, going on", self.waited_ms / 1_000)


def retry_over_outage(
    settings: ConnectionSettings,
    work: Callable[[], T],
    judged: Callable[[RocketMQError], RocketMQError] = lambda error: error,
) -> T:
    """What can be repeated, for as long as a task may wait; `judged` tells what an error means."""
    outage = Outage(settings.outage_ms, settings.retry_delay_ms_max)
    while True:
        try:
            result = work()
        except RocketMQError as error:  # noqa: PERF203 - each try takes a network's time.
            if not outage.endure(judged(error)):
                raise
        else:
            outage.end()
            return result
