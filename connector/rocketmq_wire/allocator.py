"""Teaches the C library to keep freed buffers of a few MiB instead of returning them each time."""

from __future__ import annotations

import functools
from typing import Final

# Above every buffer of the bulk paths: chunks of 1 MiB, pull bodies of 4 MiB.
_SIZE: Final = 8 * 1024 * 1024


@functools.cache
def keep_freed_buffers() -> None:
    """Call this in a process that receives or sends bulk data; only the first time counts.

    glibc gives large buffers back to the kernel when they are freed, and the next one is made of
    fresh, zeroed pages: measured, two thirds of the cost of sending a chunk. It stops doing so for
    sizes up to the largest that it has seen freed, and keeps twice as much at most. Elsewhere this
    does nothing.
    """
    # Bytes of zeros are asked of the kernel and not touched: this costs microseconds.
    bytes(_SIZE)
