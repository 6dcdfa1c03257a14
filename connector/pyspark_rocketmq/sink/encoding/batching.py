"""Batches: rows sorted by queue and cut into requests of bounded size. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from pyspark_rocketmq.sink.encoding.queue_choice import ANY
from rocketmq_arrow.kernels.gather import Mask, Positions


def rows_by_queue(queue_indices: Positions, is_separate: Mask | None = None) -> Positions | None:
    """The rows sorted by queue, in their order within each; None if they are sorted already.

    Rows for any queue need no order: the separate ones come together.
    """
    if is_separate is not None:
        queue_indices = np.where((queue_indices == ANY) & is_separate, ANY - 1, queue_indices)
    if (queue_indices[1:] >= queue_indices[:-1]).all():
        return None
    return np.argsort(queue_indices, kind="stable")


def cut_batches(
    queue_indices: Positions, sizes: Positions, bytes_max: int, is_separate: Mask | None = None
) -> Iterator[tuple[int, int, int]]:
    """(queue index, first row, end) of each request: one queue, at most `bytes_max` or one row.

    Separate rows share no request with others.
    """
    ends = np.cumsum(sizes)
    is_boundary = queue_indices[1:] != queue_indices[:-1]
    if is_separate is not None:
        is_boundary = is_boundary | (is_separate[1:] != is_separate[:-1])
    boundaries = np.flatnonzero(is_boundary) + 1
    bounds = [0, *boundaries.tolist(), len(queue_indices)]
    for run_start, run_end in itertools.pairwise(bounds):
        first = run_start
        while first < run_end:
            taken = int(ends[first - 1]) if first else 0
            fitting = int(np.searchsorted(ends, taken + bytes_max, "right"))
            end = min(max(fitting, first + 1), run_end)
            yield int(queue_indices[first]), first, end
            first = end
