"""How long one turn of a broker's event loop takes, in processor time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


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

    def add(self, seconds: float) -> None:
        self._longest.ms = max(self._longest.ms, 1_000 * seconds)


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
