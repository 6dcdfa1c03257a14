"""Lays pieces from several buffers side by side, row by row, into one new buffer.

A row is header, body, constant, text, ... in the order of the pieces. Pieces of one size, or of
few, are written to their places in all rows at once, 5 ns a piece and 25 for a body of 1 KB, and
less where all rows are of one size. Each byte is copied once where a piece's sources lie evenly,
as equal bodies side by side do, and twice where they do not. Where there are many sizes, all
sources become one Arrow binary array, and one `take` in the wanted order copies everything in C++:
10 ns a piece of 100 bytes, where joining slices in Python costs 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.kernels.gather import (
    GATHER_SIZE_MAX,
    Bytes,
    Mask,
    Positions,
    overlapping,
    values_at,
)
from rocketmq_arrow.kernels.lazy_pyarrow import pa, pc
from rocketmq_arrow.kernels.numpy_arrays import array_of
from rocketmq_wire.errors import LocalProtocolError

# A pass over the rows for each size: with more of them `take` is quicker.
_SIZES_MAX: Final = 6
_SPREAD_MAX: Final = 65_536
"""The number of counters for sizes: these stay in the cache."""


@dataclass(frozen=True, slots=True)
class Rows:
    """One piece a row: row `i` of a matrix of bytes."""

    matrix: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Ranges:
    """One piece a row: `data[start:end]`, in ascending order, not overlapping."""

    data: Bytes
    starts: Positions
    ends: Positions


@dataclass(frozen=True, slots=True)
class Constant:
    """The same piece in every row, or in the rows of the mask."""

    value: bytes
    mask: Mask | None = None


Piece = Rows | Ranges | Constant


def assemble(pieces: Sequence[Piece], count: int) -> tuple[Bytes, Positions, Positions]:
    """The rows back to back in one new buffer, with their starts and sizes.

    The buffer is writable if its flags allow it.

    Raises LocalProtocolError: the sources or the rows take 2 GiB or more, or there are too many.
    """
    pieces = _merged(pieces)
    source_size = sum(_source_size(piece) for piece in pieces)
    piece_sizes = [_piece_sizes(piece) for piece in pieces]
    sizes: Positions = np.zeros(count, np.int64)
    for each in piece_sizes:
        sizes += each
    # Arrow's offsets are int32, and so are the indices into the entries.
    largest = max(source_size, int(sizes.sum()), 2 * count * len(pieces))
    if largest > GATHER_SIZE_MAX:
        raise LocalProtocolError(f"{count} messages of {largest} bytes do not fit in one block")
    ends = np.cumsum(sizes)
    starts = ends - sizes
    if not count:
        return np.empty(0, np.uint8), starts, sizes
    groups = _groups_of(piece_sizes)
    if groups is None:
        return _taken(pieces, count, source_size, int(ends[-1])), starts, sizes
    rows = np.empty(int(ends[-1]), np.uint8)
    _scatter(pieces, groups, piece_sizes, starts, rows)
    return rows, starts, sizes


_Group = tuple[Positions | None, int]
"""Rows whose pieces are of one size, and that size; None: all rows."""


def _groups_of(piece_sizes: Sequence[Positions | int]) -> list[list[_Group]] | None:
    """The rows of each size, piece by piece; None where some piece has too many sizes."""
    groups: list[list[_Group]] = []
    for sizes in piece_sizes:
        if isinstance(sizes, int):
            groups.append([(None, sizes)])
            continue
        smallest = int(sizes.min())
        spread = int(sizes.max()) - smallest
        if not spread:
            groups.append([(None, smallest)])
            continue
        if spread > _SPREAD_MAX:
            return None
        found = np.flatnonzero(np.bincount(sizes - smallest)) + smallest
        if len(found) > _SIZES_MAX:
            return None
        groups.append([(np.flatnonzero(sizes == size), int(size)) for size in found])
    return groups


def _scatter(
    pieces: Sequence[Piece],
    groups: Sequence[Sequence[_Group]],
    piece_sizes: Sequence[Positions | int],
    starts: Positions,
    rows: Bytes,
) -> None:
    """Writes every piece to its place in every row."""
    is_uniform = all(len(each) == 1 for each in groups)
    row_size = sum(each[0][1] for each in groups)
    positions, at = starts, 0
    for piece, of_piece, sizes in zip(pieces, groups, piece_sizes, strict=True):
        for chosen, size in of_piece:
            if not size:
                continue
            kind = f"V{size}"
            values = _values(piece, chosen, kind)
            if is_uniform:
                np.ndarray((len(starts),), kind, rows, at, (row_size,))[:] = values
            else:
                overlapping(rows, kind)[positions if chosen is None else positions[chosen]] = values
            at += size
        if not is_uniform:
            positions = positions + sizes


def _values(piece: Piece, chosen: Positions | None, kind: str) -> NDArray[np.void]:
    """A piece of all rows, or of some where it is of one size."""
    if isinstance(piece, Rows):
        matrix: NDArray[np.void] = np.ascontiguousarray(piece.matrix).view(kind)[:, 0]
        return matrix
    if isinstance(piece, Constant):
        return np.frombuffer(piece.value, kind)
    return values_at(piece.data, piece.starts if chosen is None else piece.starts[chosen], kind)


def _taken(pieces: Sequence[Piece], count: int, source_size: int, size: int) -> Bytes:
    """The rows by one `take` of all pieces: a read-only buffer."""
    data = np.empty(source_size, np.uint8)
    offsets = np.empty(1 + sum(_entry_count(piece) for piece in pieces), np.int32)
    indices = np.empty((count, len(pieces)), np.int32)
    position = entry = 0
    for column, piece in enumerate(pieces):
        indices[:, column] = _locate(piece, count, position, entry, data, offsets)
        position += _source_size(piece)
        entry += _entry_count(piece)
    offsets[entry] = position
    entries = pa.Array.from_buffers(
        pa.binary(), entry, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    joined = pc.take(entries, array_of(indices.ravel()), boundscheck=False)
    return np.frombuffer(joined.buffers()[2] if size else b"", np.uint8, size)


def _merged(pieces: Sequence[Piece]) -> list[Piece]:
    """The same rows from fewer pieces: constants that follow each other become one."""
    merged: list[Piece] = []
    for piece in pieces:
        before = merged[-1] if merged else None
        if (
            isinstance(piece, Constant)
            and isinstance(before, Constant)
            and piece.mask is None
            and before.mask is None
        ):
            merged[-1] = Constant(before.value + piece.value)
        else:
            merged.append(piece)
    return merged


def _source_size(piece: Piece) -> int:
    if isinstance(piece, Rows):
        return piece.matrix.size
    return len(piece.data) if isinstance(piece, Ranges) else len(piece.value)


def _entry_count(piece: Piece) -> int:
    """How many entries of the Arrow array a piece takes."""
    if isinstance(piece, Rows):
        return len(piece.matrix)
    # A gap before each range; a constant and, for the rows without it, an empty entry.
    return 2 * len(piece.starts) + 1 if isinstance(piece, Ranges) else 2


def _piece_sizes(piece: Piece) -> Positions | int:
    if isinstance(piece, Rows):
        return int(piece.matrix.shape[1])
    if isinstance(piece, Ranges):
        return piece.ends - piece.starts
    return len(piece.value) if piece.mask is None else piece.mask * len(piece.value)


def _locate(
    piece: Piece, count: int, position: int, entry: int, data: Bytes, offsets: NDArray[np.int32]
) -> NDArray[np.int32] | int:
    """Copies a piece's source to `position`, writes its offsets; the rows' entries of the array."""
    stop = entry + _entry_count(piece)
    if isinstance(piece, Rows):
        size = piece.matrix.shape[1]
        data[position : position + piece.matrix.size] = piece.matrix.ravel()
        offsets[entry:stop] = np.arange(count, dtype=np.int32) * size + position
        return np.arange(entry, stop, dtype=np.int32)
    if isinstance(piece, Ranges):
        data[position : position + len(piece.data)] = piece.data
        offsets[entry] = position
        offsets[entry + 1 : stop : 2] = piece.starts + position
        offsets[entry + 2 : stop : 2] = piece.ends + position
        return np.arange(entry + 1, stop, 2, dtype=np.int32)
    data[position : position + len(piece.value)] = np.frombuffer(piece.value, np.uint8)
    offsets[entry] = position
    offsets[entry + 1] = position + len(piece.value)
    return entry if piece.mask is None else np.where(piece.mask, entry, entry + 1).astype(np.int32)
