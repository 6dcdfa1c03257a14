"""Ways that lead nowhere, and cut points by chance, beside the plugin's proxy."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable, Iterator

from pytest_rocketmq.faults import FaultProxy, Link

__all__ = ["FaultProxy", "Link", "seeded_cuts", "unreachable_address"]


@contextlib.contextmanager
def unreachable_address() -> Iterator[str]:
    """An address where every attempt to connect times out, as at a machine that is off."""
    with contextlib.ExitStack() as stack:
        # Nobody accepts, and the queue of those who wait is full: the kernel stays silent.
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def seeded_cuts(seed: int, low: int, high: int) -> Callable[[], int]:
    """Cut points drawn from a seed, which a failing test prints with its parameters."""
    dice = random.Random(seed)
    return lambda: dice.randint(low, high)
