"""Which of some buckets a text belongs to, as Guava's consistent hash says.

Adding a bucket moves no more texts than must be. RocketMQ's proxy picks the queue of a message
group this way, from Java's hash of its name.
"""

from __future__ import annotations

from typing import Final

_MULTIPLIER: Final = 2_862_933_555_777_941_757
_64_BITS: Final = (1 << 64) - 1


def consistent_hash(value: int, bucket_count: int) -> int:
    """The bucket of a number, from 0 on."""
    if bucket_count < 1:
        raise ValueError(f"there must be a bucket, not {bucket_count}")
    state, candidate = value & _64_BITS, 0
    while True:
        state = (state * _MULTIPLIER + 1) & _64_BITS
        ratio = ((state >> 33) + 1) / (1 << 31)
        following = int((candidate + 1) / ratio)
        if following >= bucket_count:
            return candidate
        candidate = following
