"""How long one turn of a broker's event loop takes, in processor time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

_REFERENCE_SECONDS: Final = 0.0062
"""The time of the work in `_slowness` on the machine for which the broker's limits were chosen."""


class Longest:
    """The longest turn of a loop; nobody else is served during a turn."""

    ms = 0.0


class LoopMeter:
    def __init__(self) -> None:
        self._longest = Longest()

    @contextmanager
    def measured(self) -> Iterator[Longest]:
        self._longest = Longest()
        yield self._longest
        self._longest.ms /= _slowness()

    def add(self, seconds: float) -> None:
        self._longest.ms = max(self._longest.ms, 1_000 * seconds)


def _slowness() -> float:
    """How many times slower this machine is at this moment than that one; 1 at least."""
    began = time.thread_time()
    counts = dict.fromkeys(range(1_024), 0)
    for number in range(100_000):
        counts[number & 1_023] = counts[number & 1_023] + 1
    return max(1.0, (time.thread_time() - began) / _REFERENCE_SECONDS)


@contextmanager
def metered_loops() -> Iterator[LoopMeter]:
    """Measure every callback of all loops of this process; other processes do not count."""
    meter = LoopMeter()
    run = asyncio.Handle._run

    def metered(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        meter.add(time.thread_time() - began)

    with patch.object(asyncio.Handle, "_run", metered):
        yield meter
