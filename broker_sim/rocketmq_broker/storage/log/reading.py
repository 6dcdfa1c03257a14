"""Consume-queue entries -> the records that a read returns, in few copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_arrow.kernels.gather import take_binary, values_of
from rocketmq_broker.storage.log.commit_log import CommitLog
from rocketmq_broker.storage.queues.consume_queue import Entries

Positions = npt.NDArray[np.int64]
Sizes = npt.NDArray[np.int32]

_RUN_SIZE_MIN: Final = 8 * 1024
"""Mean size from which runs of records are returned as slices; shorter runs are copied together."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Whole records back to back in `parts`, and the offset of the next read."""

    parts: tuple[memoryview, ...]
    sizes: bytes
    """Little-endian int32 sizes of the records."""
    count: int
    next_begin: int
    lost: int = 0
    """Number of messages up to `next_begin` that a repair gave up, if the read began in a hole."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The records to return from the scanned entries."""

    positions: Positions
    sizes: Sizes
    scanned: int
    """Number of entries that are returned or do not match."""


def select(
    entries: Entries,
    *,
    count_max: int,
    bytes_max: int,
    tag_hashes: npt.NDArray[np.int64] | None,
) -> Selection:
    """Select matching records within the limits; the first one may be of any size."""
    kept: npt.NDArray[np.intp] | None = None
    if tag_hashes is not None:
        found = entries["tag_hash"].astype(np.int64)
        if len(tag_hashes) == 1:
            kept = np.flatnonzero(found == tag_hashes[0])
        else:
            kept = np.flatnonzero(np.isin(found, tag_hashes))
    # Native copies of single columns: the packed big-endian entries are slow to compute with.
    sizes = entries["size"].astype(np.int32)
    positions = entries["position"].astype(np.int64)
    if kept is not None:
        sizes, positions = sizes[kept], positions[kept]
    totals = np.cumsum(sizes, dtype=np.int64)
    count = int(np.searchsorted(totals, bytes_max, side="right"))
    count = min(max(count, 1), count_max, len(sizes))
    scanned = len(entries)
    if count < len(sizes):
        # The next read begins at the next match; entries before it do not match.
        scanned = count if kept is None else int(kept[count])
    return Selection(positions[:count], sizes[:count], scanned)


def gather(log: CommitLog, positions: Positions, sizes: Sizes) -> tuple[memoryview, ...]:
    """The bytes of records at ascending log positions, whole runs as slices of the mapped log."""
    if len(positions) == 0:
        return ()
    breaks = np.flatnonzero(positions[1:] != positions[:-1] + sizes[:-1]) + 1
    total = int(sizes.sum(dtype=np.int64))
    if total < _RUN_SIZE_MIN * len(breaks):
        return _gather_scattered(log, positions, sizes)
    starts = np.concatenate(([0], breaks))
    ends = np.concatenate((breaks, [len(positions)])) - 1
    parts = []
    for begin, end in zip(
        positions[starts].tolist(), (positions[ends] + sizes[ends]).tolist(), strict=True
    ):
        parts.append(log.view(begin, end - begin))
    return tuple(parts)


def _gather_scattered(log: CommitLog, positions: Positions, sizes: Sizes) -> tuple[memoryview, ...]:
    """The records of each file of the log, copied into one part."""
    segments = positions // log.segment_size
    cuts = np.flatnonzero(segments[1:] != segments[:-1]) + 1
    parts = []
    for begins, lengths in zip(np.split(positions, cuts), np.split(sizes, cuts), strict=True):
        segment = log.segment_of(int(begins[0]))
        starts = begins - segment.start
        taken = take_binary(segment.bytes, starts, starts + lengths)
        parts.append(values_of(taken)[0].data)
    return tuple(parts)
