"""Hashes that RocketMQ's servers and clients must agree on: Java's string hash, Guava's buckets."""

from __future__ import annotations

from typing import Final

_MULTIPLIER: Final = 2_862_933_555_777_941_757
_64_BITS: Final = (1 << 64) - 1


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 31-polynomial over UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def consistent_hash(value: int, bucket_count: int) -> int:
    """The bucket of a number by Guava's consistent hash, counted from 0.

    An added bucket moves the fewest numbers possible. RocketMQ's proxy picks the queue of a message
    group this way, from the Java hash of its name.
    """
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
