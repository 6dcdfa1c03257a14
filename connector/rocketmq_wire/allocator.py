"""Teaches the C library to keep freed buffers of a few MiB instead of returning them each time."""

from __future__ import annotations

import functools
from typing import Final

# Above every buffer of the bulk paths: chunks of 1 MiB, pull bodies of 4 MiB.
_SIZE: Final = 8 * 1024 * 1024


@functools.cache
def keep_freed_buffers() -> None:
    """Make glibc reuse freed buffers; for processes that receive or send bulk data.

    By default glibc returns large freed buffers to the kernel, and the next buffer consists of
    fresh, zeroed pages: measured, two thirds of the cost of sending a chunk. glibc reuses buffers
    up to the largest size that was ever freed, and keeps at most twice that. With other allocators
    this call does nothing.
    """
    # The kernel hands zeros out without touching memory: this costs microseconds.
    bytes(_SIZE)
