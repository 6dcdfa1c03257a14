"""Picks values out of one buffer at many positions at once: numbers, comparisons, byte strings.

Numbers and pieces of one size come from a view whose elements overlap (stride 1), so that a
position need not be aligned: 5 ns each, of 8 bytes or of 80. Byte strings come from an Arrow array
over the buffer whose offsets alternate between a gap and a value; `take` of the odd entries copies
the values side by side in C++: 10 to 14 ns for 100 bytes, where a Python object a value costs 60
and more. Positions at one distance from each other, as of records of one size, need no gather: 2 ns
a number, 5 for a piece, 8 for a byte string, with what it takes to recognise them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.kernels.lazy_pyarrow import pa, pc
from rocketmq_arrow.kernels.numpy_arrays import array_of, string_array, text_array

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]
Mask = NDArray[np.bool_]

# glibc gives freed memory of a chunk's size back to the system and faults it in again for the next
# chunk, 100 ns a record, until it has seen a larger block being freed (mallopt, M_MMAP_THRESHOLD).
# This block is never touched, so it costs nothing.
_LARGER_BLOCK_SIZE: Final = 30 * 1024 * 1024
np.empty(_LARGER_BLOCK_SIZE, np.uint8)
# Positions are passed to Arrow as int32.
GATHER_SIZE_MAX: Final = 2**31 - 1
_INDICES_CACHED: Final = 32_768
# Rows are compared with this many copies of the expected bytes at once: long inner loops.
_COPIES: Final = 64


def overlapping(data: Bytes, dtype: str) -> NDArray[Any]:
    """The value that starts at each byte of `data`."""
    size = np.dtype(dtype).itemsize
    view: NDArray[Any] = np.ndarray((max(0, len(data) - size + 1),), dtype, data, 0, (1,))
    return view


def values_at(data: Bytes, positions: Positions, dtype: str) -> NDArray[Any]:
    """The values that start at `positions`; a view of the data where it can be one: do not write.

    Raises IndexError: there is no room for a value at one of the positions.
    """
    step = _step_of(positions)
    size = np.dtype(dtype).itemsize
    if step and positions[0] >= 0 and positions[-1] + size <= len(data):
        shape = (len(positions),)
        values: NDArray[Any] = np.ndarray(shape, dtype, data, int(positions[0]), (step,))
    else:
        values = overlapping(data, dtype)[positions]
    return values


def pieces_at(data: Bytes, positions: Positions, size: int) -> Bytes:
    """A row of `size` bytes from each position on, as a matrix that may be written.

    Raises IndexError: fewer bytes follow one of the positions.
    """
    pieces = values_at(data, positions, f"V{size}")
    if pieces.base is not None:  # A view.
        pieces = pieces.copy()
    rows: Bytes = pieces.view(np.uint8).reshape(len(positions), size)
    return rows


def numbers_at(data: Bytes, positions: Positions, dtype: str) -> NDArray[Any]:
    """The big-endian numbers at `positions` in the machine's byte order."""
    values = values_at(data, positions, dtype)
    return values.astype(values.dtype.newbyteorder("="))


def equals_at(data: Bytes, positions: Positions, expected: bytes) -> Mask:
    """Where the bytes at `positions` are `expected`; every position must have room for them."""
    equal = np.ones(len(positions), np.bool_)
    at = 0
    rest = len(expected)
    while rest:
        # The largest word that fits; the last one overlaps its predecessor instead of shrinking.
        size = next(size for size in (8, 4, 2, 1) if size <= len(expected))
        at = min(at, len(expected) - size)
        word = np.frombuffer(expected, f"<u{size}", 1, at)[0]
        equal &= values_at(data, positions + at, f"<u{size}") == word
        at += size
        rest = len(expected) - at
    return equal


def differing_rows(rows: Bytes, text: bytes, mask: bytes) -> Positions:
    """Indices of the rows, side by side in `rows`, that are not `text` where the mask is 0xFF."""
    size = len(text)
    texts, masks = _copies(text, mask)
    whole = len(rows) // len(texts) * len(texts)
    wrong = rows[:whole].reshape(-1, len(texts)) ^ texts
    rest = rows[whole:] ^ texts[: len(rows) - whole]
    seen = np.bitwise_or.reduce(wrong, axis=0) & masks
    if not seen.any() and not (rest & masks[: len(rest)]).any():
        return np.empty(0, np.int64)
    differing = np.append(wrong, rest) & np.resize(masks, len(rows))
    return np.flatnonzero(differing.reshape(-1, size).any(axis=1))


@lru_cache(maxsize=64)
def _copies(text: bytes, mask: bytes) -> tuple[Bytes, Bytes]:
    return np.frombuffer(text * _COPIES, np.uint8), np.frombuffer(mask * _COPIES, np.uint8)


def take_binary(
    data: Bytes, starts: Positions, ends: Positions, missing: Mask | None = None
) -> pa.BinaryArray:
    """The byte strings `data[start:end]`; null where `missing`. Ranges must not overlap."""
    assert len(data) <= GATHER_SIZE_MAX
    count = len(starts)
    if missing is None and count > 1:
        values = _take_equal(data, starts, ends)
        if values is not None:
            return values
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0] = 0
    offsets[1::2] = starts
    offsets[2::2] = ends
    gaps_and_values = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    if missing is not None:
        indices = array_of(np.arange(1, 2 * count, 2, dtype=np.int32), missing)
    elif count <= _INDICES_CACHED:
        indices = _odd()[:count]
    else:
        indices = array_of(np.arange(1, 2 * count, 2, dtype=np.int32))
    return pc.take(gaps_and_values, indices, boundscheck=False)


@cache
def _odd() -> pa.Int32Array:
    return array_of(np.arange(1, 2 * _INDICES_CACHED, 2, dtype=np.int32))


def _take_equal(data: Bytes, starts: Positions, ends: Positions) -> pa.BinaryArray | None:
    """Byte strings of one size at one distance from each other; None when they are others."""
    size = int(ends[0] - starts[0])
    if not 0 < size == int(ends[-1] - starts[-1]) or not (step := _step_of(starts)):
        return None
    if not (ends - starts == size).all():
        return None
    return take_rows(data, int(starts[0]), step, size, len(starts))


def take_rows(data: Bytes, first: int, step: int, size: int, count: int) -> pa.BinaryArray:
    """The byte strings of `rows_of`."""
    values = pa.py_buffer(rows_of(data, first, step, size, count))
    offsets = np.arange(0, size * count + 1, size, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), values]
    return pa.Array.from_buffers(pa.binary(), count, buffers, null_count=0)


def rows_of(data: Bytes, first: int, step: int, size: int, count: int) -> Bytes:
    """Copies `size` bytes from each of equidistant positions into a matrix.

    Raises ValueError: they are not all in `data`.
    """
    rows = np.ndarray((count,), f"V{size}", data, first, (step,))
    copied: Bytes = np.ascontiguousarray(rows).view(np.uint8).reshape(count, size)
    return copied


def _step_of(positions: Positions) -> int:
    """The distance from each position to the next one; 0 when there is not one for all."""
    if len(positions) < 2:
        return 0
    first, step = int(positions[0]), int(positions[1] - positions[0])
    # The last one tells mostly, without a look at the others.
    if step <= 0 or first + step * (len(positions) - 1) != positions[-1]:
        return 0
    return step if (positions[1:] - positions[:-1] == step).all() else 0


def as_text(values: pa.BinaryArray, *, is_ascii: bool = False) -> pa.StringArray:
    """The byte strings as UTF-8 text; what is not UTF-8 becomes U+FFFD, in those values only."""
    if is_ascii:
        return values.view(pa.string())
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return text_array(
            [
                None if value is None else value.decode("utf-8", "replace")
                for value in values.to_pylist()
            ]
        )


def is_ascii(data: Bytes) -> bool:
    return not len(data) or int(data.max()) < 0x80


def is_utf8(data: Bytes) -> bool:
    try:
        str(data.data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def values_of(array: pa.BinaryArray) -> tuple[Bytes, Positions]:
    """The values of a binary array without nulls side by side, and their offsets."""
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(array) + 1, 4 * array.offset)
    offsets = offsets.astype(np.int64)
    if data_buffer is None or offsets[-1] == offsets[0]:
        return np.empty(0, np.uint8), np.zeros(len(array) + 1, np.int64)
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    return data, offsets - offsets[0]


def replace_rows(
    array: pa.Array, rows: Sequence[int] | Positions, replacements: Sequence[bytes | str | None]
) -> pa.Array:
    """The array of texts or byte strings with other values in a few rows."""
    indices = np.arange(len(array), dtype=np.int64)
    indices[rows] = len(array) + np.arange(len(replacements))
    joined = pa.concat_arrays([array, string_array(replacements, array.type)])
    return joined.take(array_of(indices))
