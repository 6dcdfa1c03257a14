"""Ranges -> the tasks that read them. Pure."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_rocketmq.options.values import ReadOptions
from rocketmq_wire.model import OffsetRange


@dataclass(frozen=True, slots=True)
class Split:
    """How to divide ranges into tasks; None: one task for each range."""

    partitions_min: int | None = None
    partitions_max: int | None = None
    records_max: int | None = None

    @classmethod
    def of(cls, options: ReadOptions) -> Split:
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
