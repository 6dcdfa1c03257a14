"""Bounds and limits -> the end offsets of a micro-batch -> its ranges. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.planning.checkpoint import SourceOffset
from rocketmq_wire.model import OffsetRange, QueueId

# The assumed size of a message before one was sampled.
GUESSED_BYTES: Final = 1_024.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a micro-batch; None: no limit."""

    messages_max: int | None = None
    messages_min: int | None = None
    bytes_max: int | None = None
    delay_ms_max: int = 900_000


def backlogs(offsets: Mapping[QueueId, int], ends: Mapping[QueueId, int]) -> dict[QueueId, int]:
    """Return how many messages wait in each queue; queues without any are left out."""
    return {
        queue: ends[queue] - offset
        for queue, offset in offsets.items()
        if ends.get(queue, offset) > offset
    }


def share_limit(sizes: Mapping[QueueId, int], limit: int) -> dict[QueueId, int]:
    """Divide `limit` in proportion to the sizes, as Spark's Kafka source does.

    A share below one is rounded up, so that a large queue never starves a small one; the sum can be
    above the limit by the number of such queues.
    """
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    shares: dict[QueueId, int] = {}
    for queue, size in sizes.items():
        # Whole numbers: a float would be wrong above 2**53.
        share = limit * size // total
        shares[queue] = min(size, max(share, 1))
    return shares


def admit(
    sizes: Mapping[QueueId, int],
    limits: Limits,
    *,
    waited_ms: int,
    bytes_per_message: float = GUESSED_BYTES,
) -> dict[QueueId, int]:
    """Return how many messages of each queue the next micro-batch takes; empty: none yet."""
    total = sum(sizes.values())
    if total == 0:
        return {}
    is_early = waited_ms < limits.delay_ms_max
    if limits.messages_min is not None and total < limits.messages_min and is_early:
        return {}
    most = limits.messages_max
    if limits.bytes_max is not None:
        by_bytes = max(1, math.floor(limits.bytes_max / max(1, bytes_per_message)))
        most = by_bytes if most is None else min(most, by_bytes)
    return dict(sizes) if most is None else share_limit(sizes, most)


def advance(
    start: SourceOffset,
    offsets: Mapping[QueueId, int],
    taken: Mapping[QueueId, int],
    first_store_times: Mapping[QueueId, int],
    first_offsets: Mapping[QueueId, int] = {},
) -> SourceOffset:
    """Return the end of the next micro-batch: `taken` messages behind `offsets`.

    `offsets` are the next ones to read: the start's offsets, queues found since, and offsets
    corrected after a loss. Those that differ from the start's are anchored in `starts`.
    """
    starts = {
        queue: offset
        for queue, offset in offsets.items()
        if start.is_initial or start.offsets.get(queue) != offset
    }
    ends = {queue: offset + taken.get(queue, 0) for queue, offset in offsets.items()}
    return SourceOffset(
        ends,
        starts,
        _identity_of(ends, first_store_times),
        _identity_of(ends, first_offsets),
        is_initial=start.is_initial and not taken,
    )


def _identity_of(
    ends: Mapping[QueueId, int], identity: Mapping[QueueId, int]
) -> Mapping[QueueId, int]:
    is_whole = identity.keys() <= ends.keys()
    return identity if is_whole else {queue: identity[queue] for queue in ends if queue in identity}


def ranges_between(start: SourceOffset, end: SourceOffset) -> list[OffsetRange]:
    """Return the ranges of a micro-batch, queue by queue, without empty ones."""
    if start == end:
        return []
    ranges = []
    starts, before = end.starts, start.offsets
    for queue in sorted(end.offsets):
        last = end.offsets[queue]
        first = starts[queue] if queue in starts else before.get(queue, last)
        if first < last:
            ranges.append(OffsetRange(queue, first, last))
    return ranges
