"""Waits for descriptors: poll(2), which keeps nothing in the kernel and knows no highest number."""

from __future__ import annotations

import select


def wait_for(
    descriptor: int | None, *, is_writing: bool, also: int | None, timeout_ms: int
) -> bool:
    """True when a descriptor can be read, or the first one, if `is_writing`, be written.

    `also` is a second descriptor to read from. Without any, this only lets the time pass.
    """
    reading = [number for number in (descriptor, also) if number is not None]
    writing = [descriptor] if is_writing and descriptor is not None else []
    if not hasattr(select, "poll"):
        return any(select.select(reading, writing, [], timeout_ms / 1_000))
    poll = select.poll()
    for number in reading:
        poll.register(number, select.POLLIN | (select.POLLOUT if number in writing else 0))
    return bool(poll.poll(timeout_ms))
