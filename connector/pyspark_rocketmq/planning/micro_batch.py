"""Bounds and limits -> end offsets -> ranges -> partitions. Pure: no clock, no network."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from rocketmq_wire.model import OffsetRange, QueueId

# Ends that a batch resolves when it reads; users write the same numbers in JSON.
EARLIEST: Final = -2
LATEST: Final = -1
# The assumed size of a message before one was sampled.
GUESSED_BYTES: Final = 1_024.0


# --- how much a micro-batch takes -------------------------------------------------------------


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


# --- dividing the work ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Split:
    """How to divide ranges into tasks; None: one task for each range."""

    partitions_min: int | None = None
    partitions_max: int | None = None
    records_max: int | None = None

    @classmethod
    def of(cls, options: ReadOptions) -> Split:
        """Return the division that the user asks for."""
        return cls(
            options.min_partitions, options.max_partitions, options.max_records_per_partition
        )


def divide(ranges: Sequence[OffsetRange], split: Split) -> list[tuple[OffsetRange, ...]]:
    """Cut and pack ranges into tasks, none of them empty, without losing an offset."""
    pieces = _cut([piece for piece in ranges if len(piece)], split)
    if split.partitions_max is None or len(pieces) <= split.partitions_max:
        return [(piece,) for piece in pieces]
    return _pack(pieces, split.partitions_max, split.records_max)


def _cut(ranges: Sequence[OffsetRange], split: Split) -> list[OffsetRange]:
    if split.records_max is None and (split.partitions_min or 0) <= len(ranges):
        return list(ranges)
    counts = [
        1 if split.records_max is None else -(-len(piece) // split.records_max) for piece in ranges
    ]
    wanted = min(split.partitions_min or 0, sum(len(piece) for piece in ranges))
    _cut_largest(ranges, counts, wanted - sum(counts))
    return [
        part for piece, count in zip(ranges, counts, strict=True) for part in _parts(piece, count)
    ]


def _cut_largest(ranges: Sequence[OffsetRange], counts: list[int], more: int) -> None:
    """Cut the range with the largest pieces once more, `more` times."""
    largest = [
        (-len(piece) / count, index)
        for index, (piece, count) in enumerate(zip(ranges, counts, strict=True))
    ]
    heapq.heapify(largest)
    for _ in range(more):
        while True:
            _, index = heapq.heappop(largest)
            if counts[index] < len(ranges[index]):
                break
        counts[index] += 1
        heapq.heappush(largest, (-len(ranges[index]) / counts[index], index))


def _parts(piece: OffsetRange, count: int) -> list[OffsetRange]:
    if count == 1:
        return [piece]
    size = len(piece)
    cuts = [piece.start + size * number // count for number in range(count + 1)]
    return [OffsetRange(piece.queue, *pair) for pair in itertools.pairwise(cuts)]


def _pack(
    pieces: Sequence[OffsetRange], partitions_max: int, records_max: int | None
) -> list[tuple[OffsetRange, ...]]:
    # Largest first into the emptiest task: at most a third above the best possible balance.
    tasks: list[list[OffsetRange]] = [[] for _ in range(partitions_max)]
    sizes = [(0, index) for index in range(partitions_max)]
    for piece in sorted(pieces, key=len, reverse=True):
        size, index = heapq.heappop(sizes)
        if records_max is not None and size and size + len(piece) > records_max:
            # If the emptiest has no room, none has: the limit of a task beats the number of tasks.
            heapq.heappush(sizes, (size, index))
            size, index = 0, len(tasks)
            tasks.append([])
        tasks[index].append(piece)
        heapq.heappush(sizes, (size + len(piece), index))
    packed = [tuple(sorted(task, key=lambda piece: (piece.queue, piece.start))) for task in tasks]
    return [task for task in packed if task]


# --- batch reads, some of whose ends are resolved when read -----------------------------------


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """A part of a queue for one task; `start` may be EARLIEST and `end` LATEST."""

    queue: QueueId
    start: int
    end: int
    end_planned: int = 0
    """The queue's end when planned, if `end` is LATEST and there was something to read."""


@dataclass(frozen=True, slots=True)
class PlannedQueue:
    """A queue of a batch read: its planned range, and which ends are late."""

    queue: QueueId
    start: int
    end: int
    is_start_late: bool = False
    is_end_late: bool = False


@dataclass(frozen=True, slots=True)
class BatchTask:
    """One task of a batch read.

    The task also reads those queues of `unplanned_topics` that are not in `planned_queues`: they
    were created after the plan.
    """

    slices: tuple[QueueSlice, ...]
    unplanned_topics: tuple[str, ...] = ()
    planned_queues: tuple[QueueId, ...] = ()


def plan_batch(
    queues: Sequence[PlannedQueue], split: Split, late_topics: Iterable[str] = ()
) -> list[BatchTask]:
    """Divide a batch read into tasks.

    Only the first start and the last end of a queue may be late; inner cuts are numbers, so every
    offset is read exactly once, however the late ends are resolved. A task of the same topic also
    gets late queues that are empty so far, and the future queues of `late_topics`.
    """
    planned = {planned.queue: planned for planned in queues}
    ranges = [
        OffsetRange(known.queue, known.start, max(known.start, known.end)) for known in queues
    ]
    tasks = [
        tuple(_late_slice(piece, planned[piece.queue]) for piece in task)
        for task in divide(ranges, split)
    ]
    leftovers: dict[str, list[QueueSlice]] = {topic: [] for topic in sorted(set(late_topics))}
    for known in queues:
        if known.end <= known.start and known.is_end_late:
            piece = OffsetRange(known.queue, known.start, known.start)
            leftovers.setdefault(known.queue.topic, []).append(_late_slice(piece, known))
    late = set(late_topics)
    result = [BatchTask(task) for task in tasks]
    for topic, slices in leftovers.items():
        host = _host(result, topic, split.partitions_max)
        old = BatchTask(()) if host is None else result[host]
        new = BatchTask(
            (*old.slices, *slices),
            (*old.unplanned_topics, topic) if topic in late else old.unplanned_topics,
            (*old.planned_queues, *(q for q in sorted(planned) if q.topic == topic))
            if topic in late
            else old.planned_queues,
        )
        if host is None:
            result.append(new)
        else:
            result[host] = new
    return result


def _host(tasks: Sequence[BatchTask], topic: str, partitions_max: int | None) -> int | None:
    for index, task in enumerate(tasks):
        if any(piece.queue.topic == topic for piece in task.slices):
            return index
    return 0 if tasks and partitions_max is not None and len(tasks) >= partitions_max else None


def _late_slice(piece: OffsetRange, known: PlannedQueue) -> QueueSlice:
    is_end_late = known.is_end_late and piece.end == max(known.start, known.end)
    return QueueSlice(
        piece.queue,
        EARLIEST if known.is_start_late and piece.start == known.start else piece.start,
        LATEST if is_end_late else piece.end,
        known.end if is_end_late and known.end > known.start else 0,
    )
