"""Finds where each record of a pull body starts and ends; refuses torn bodies.

A record starts with its own size, and so does an entry of a batch body: the starts form a chain
that must end exactly at the buffer's end. Four ways to follow it, ns a record of 280 bytes:

    sizes given by the sender                    9    one comparison of every record's size field
    runs of equal sizes                          7    the same, computed from the size
    many walkers that start at found magics     40    each step moves all of them, in numpy
    one walker                                 200    `struct` in a loop: small bodies only

A walker that starts at a magic inside some body does not meet the next one's start: then the single
walker decides. So all four find exactly the chain from the first byte.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.kernels.gather import Bytes, Positions, numbers_at, overlapping, pieces_at
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import Buffer
from rocketmq_wire.records.batch import ENTRY_SIZE_MIN
from rocketmq_wire.records.record import RECORD_SIZE_MIN

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
_MAGIC_SIZE: Final = 4
_SIZE: Final = struct.Struct(">i")
# Below about this many records a single walker is as fast.
_WALKED_COUNT_MAX: Final = 1_000
# Records per walker: the fastest of 12 to 64.
_RECORDS_PER_WALKER: Final = 24
# A shorter run of equal sizes is not worth its comparison.
_RUN_MIN: Final = 32
# Bounds the walk when some walkers are among tiny records and others among large ones.
_STEPS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class _Chain:
    """A chain to follow: its name in errors, the least size, the bytes that follow a size."""

    where: str
    size_min: int
    magic_size: int


def record_bounds(
    buffer: Buffer | Bytes,
    sizes: Buffer | None = None,
    *,
    where: str = "records",
    compares_sizes: bool = True,
) -> tuple[Positions, Positions]:
    """Starts and sizes of the records that fill `buffer`; `sizes` are little-endian int32.

    Given sizes are compared with the records' own, unless the caller does that. Raises
    CorruptRecordError if the sizes do not lead from the first byte exactly to the last.
    """
    data = np.frombuffer(buffer, np.uint8)
    if sizes is not None:
        starts, given = _given_bounds(data, sizes, where)
        if compares_sizes:
            refuse_other_sizes(starts, given, numbers_at(data, starts, ">i4"), where)
        return starts, given
    return _follow(data, _Chain(where, RECORD_SIZE_MIN, _MAGIC_SIZE))


def entry_bounds(buffer: Buffer | Bytes, *, where: str) -> tuple[Positions, Positions]:
    """Starts and sizes of the entries that fill a batch body (see `rocketmq_wire.records.batch`).

    Raises CorruptRecordError if the sizes do not lead from the first byte exactly to the last.
    """
    # Magic and checksum of an entry are zero: 8 bytes to find the start of a later one by.
    return _follow(np.frombuffer(buffer, np.uint8), _Chain(where, ENTRY_SIZE_MIN, 8))


def _follow(data: Bytes, chain: _Chain) -> tuple[Positions, Positions]:
    runs, position = _equal_runs(data, chain)
    if position < len(data):
        runs.append(_other_starts(data, position, chain))
    starts = np.concatenate(runs) if len(runs) != 1 else runs[0]
    return starts, np.diff(starts, append=len(data))


def _equal_runs(data: Bytes, chain: _Chain) -> tuple[list[Positions], int]:
    """The starts of records in runs of one size, and where the first short run begins."""
    runs: list[Positions] = [np.empty(0, np.int64)] if not len(data) else []
    position = 0
    while position < len(data):
        size = _size_at(data, position, chain)
        count_max = (len(data) - position) // size
        count = known = 0
        # Longer and longer stretches: at most twice the run is compared.
        while count == known and known < count_max:
            known = min(max(_RUN_MIN, 2 * known), count_max)
            fields: NDArray[np.signedinteger] = np.ndarray(
                (known,), ">i4", data.data, position, (size,)
            )
            is_equal = fields == size
            count = known if is_equal.all() else int(np.argmin(is_equal))
        end = position + count * size
        if count < _RUN_MIN and end < len(data):
            break
        runs.append(np.arange(position, end, size, dtype=np.int64))
        position = end
    return runs, position


def _other_starts(data: Bytes, position: int, chain: _Chain) -> Positions:
    """The starts of the records from a record's start on, whatever their sizes."""
    rest = data[position:]
    first = _size_at(data, position, chain)
    if len(rest) > first * _WALKED_COUNT_MAX:
        found = _many_walkers(rest, first, chain)
        if found is not None:
            return found + position
    return np.array(_one_walker(data, position, chain), np.int64)


def _given_bounds(data: Bytes, sizes: Buffer, where: str) -> tuple[Positions, Positions]:
    if len(memoryview(sizes).cast("B")) % 4:
        raise CorruptRecordError(where, 0, "the list of record sizes is torn")
    given = np.frombuffer(sizes, "<i4").astype(np.int64)
    ends = np.cumsum(given)
    if len(given) == 0 or (given < RECORD_SIZE_MIN).any() or ends[-1] != len(data):
        if len(given) == 0 and len(data) == 0:
            return given, given
        raise CorruptRecordError(
            where, 0, f"the given record sizes do not add up to the {len(data)} bytes received"
        )
    return ends - given, given


def refuse_other_sizes(
    starts: Positions, given: Positions, stored: NDArray[np.integer], where: str
) -> None:
    """Raise CorruptRecordError when a record's own size is not the one that was given for it."""
    is_wrong = stored != given
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        raise CorruptRecordError(
            where,
            int(starts[row]),
            f"the record's size is {stored[row]}, announced was {given[row]}",
        )


def _size_at(data: Bytes, position: int, chain: _Chain) -> int:
    rest = len(data) - position
    if rest < chain.size_min:
        raise CorruptRecordError(chain.where, position, f"torn: only {rest} bytes are left")
    size: int = _SIZE.unpack_from(data.data, position)[0]
    if not chain.size_min <= size <= rest:
        raise CorruptRecordError(
            chain.where, position, f"size {size} is not within {chain.size_min} and {rest}"
        )
    return size


def _one_walker(data: Bytes, position: int, chain: _Chain) -> list[int]:
    unpack, end, size_min = _SIZE.unpack_from, len(data), chain.size_min
    buffer = data.data
    starts = []
    while position < end:
        # `_size_at` inlined: a call would double the cost of a record.
        if end - position < size_min:
            _size_at(data, position, chain)
        (size,) = unpack(buffer, position)
        if size < size_min or size > end - position:
            _size_at(data, position, chain)
        starts.append(position)
        position += size
    return starts


def _walker_starts(data: Bytes, first: int, chain: _Chain) -> Positions:
    """Byte 0, and at about equal distances the next position of the magic."""
    magic = data[4 : 4 + chain.magic_size].tobytes()
    window = 2 * first
    step = max(_RECORDS_PER_WALKER * first, window)
    targets = np.arange(step, len(data) - window - chain.size_min, step)
    # The windows' bytes side by side; only few are the magic's first byte.
    windows = pieces_at(data, targets, window)
    row, position = np.divmod(np.flatnonzero(windows.ravel() == magic[0]), window)
    positions = targets[row] + position
    words = overlapping(data, f"V{len(magic)}")[positions].view(f"<u{len(magic)}")
    is_magic = words == np.frombuffer(magic, f"<u{len(magic)}")[0]
    row, positions = row[is_magic], positions[is_magic] - 4
    is_first = np.diff(row, prepend=-1) > 0
    return np.append(0, positions[is_first])


def _many_walkers(data: Bytes, first: int, chain: _Chain) -> Positions | None:
    """All starts, or None when some walker was started inside a record or met damage."""
    begins = _walker_starts(data, first, chain)
    limits, last = begins[1:], int(begins[-1])
    size_fields = overlapping(data, ">i4")
    rows = [begins[:-1]]
    # A walker that has passed its limit walks on, at most to where the last one starts: waiting
    # for the others costs nothing, masks would. The chain is checked as a whole afterwards.
    for step in range(1, _STEPS_MAX):
        try:
            position = rows[-1] + size_fields[rows[-1]]
        except IndexError:  # A walker inside a record read a hostile size.
            return None
        rows.append(np.minimum(position, last, out=position))
        if step % 4 == 0 and (position >= limits).all():
            break
    walked = np.stack(rows, axis=1)
    if not (walked == limits[:, np.newaxis]).any(axis=1).all():
        return None  # Some walker was started inside a record: no other one reached its start.
    starts = walked[walked < limits[:, np.newaxis]]
    try:
        tail = _one_walker(data, last, chain)
        # A walker that would pass the last start stops there, too: check that it meets it.
        is_met = not len(starts) or starts[-1] + _size_at(data, int(starts[-1]), chain) == last
    except CorruptRecordError:  # Torn, or the last walker was started inside a record.
        return None
    starts = np.concatenate([starts, np.array(tail, np.int64)])
    return starts if is_met and np.diff(starts).min(initial=last) >= chain.size_min else None
