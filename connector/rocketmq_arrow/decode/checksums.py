"""Compares the bodies of many records with their stored CRC-32 a few hundred sums at a time.

A call a body costs more than the sum itself: 75 ns for 100 bytes over the bytes objects that Arrow
makes of its array (19 of it for making them), 160 over slices of one buffer, where `isal` sums 100
bytes inside of a long buffer in 2. But the CRC is linear: with a register that starts at 0, the sum
of bodies that are XORed over each other is the XOR of their sums, and bytes of zero before a body
change nothing. So the bodies of a group become one body, and the stored CRCs one CRC.

Each body is in two groups, by its index modulo m and modulo m + 1, which is more than there are
bodies: two bodies meet in at most one group. A body that is the only wrong one of some group is
found exactly when its own 31 stored bits tell (the highest bit of a CRC is not stored). So up to
three wrong bodies, and any m in a row, are found as if each were summed alone. Four and more hide
each other only where each meets another one in both its groups and the errors cancel in all these
groups: when the same error stands in all four of them, or by a chance of 2^-31 for each group.
When something is wrong, body by body finds which are.

Nanoseconds a body of 100 bytes: 10 when all sizes are equal and the bodies lie side by side, 15
when they do not, 35 for various sizes; body by body 120 to 150.
"""

from __future__ import annotations

import math
import zlib
from array import array
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.decode.layout import CRC_MASK
from rocketmq_arrow.kernels.gather import Bytes, Positions, pieces_at, take_binary
from rocketmq_arrow.kernels.numpy_arrays import byte_strings

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

# Beyond, going over bodies twice, or copying those of various sizes, costs more than a call a body.
_EQUAL_SIZE_MAX: Final = 1_500
_JOINT_SIZE_MAX: Final = 700
# From here on a slice of the buffer is quicker than a copy of the body.
_SLICED_SIZE_MIN: Final = 300
# Fewer bodies are summed one by one.
_ROWS_MIN: Final = 64
_BYTES_AT_ONCE: Final = 1024 * 1024
# As many objects stay in the cache.
_OBJECTS_AT_ONCE: Final = 1_000
_REGISTER_ZERO: Final = 0xFFFFFFFF
"""What `crc32` takes and gives for a register of 0: it inverts both."""


def wrong_bodies(
    data: Bytes, starts: Positions, ends: Positions, stored: NDArray[np.int32]
) -> Positions:
    """The rows whose bodies `data[start:end]` are not what their records' checksums say."""
    suspects = _suspects(data, starts, ends, stored)
    if not len(suspects):
        return suspects
    is_wrong = crcs_at(data, starts[suspects], ends[suspects]) != stored[suspects]
    wrong: Positions = suspects[is_wrong]
    return wrong


def _suspects(
    data: Bytes, starts: Positions, ends: Positions, stored: NDArray[np.int32]
) -> Positions:
    """The rows that must be summed one by one, as common sums do not prove them right."""
    sizes = ends - starts
    every = np.arange(len(starts))
    if len(starts) < _ROWS_MIN:
        return every
    size = int(sizes[0])
    if 0 < size <= _EQUAL_SIZE_MAX and (sizes == size).all():
        return every[:0] if are_right(pieces_at(data, starts, size), stored) else every
    width = _row_width(sizes)
    if not width:
        return every
    # Too early for the bytes before the body, or too large.
    is_odd = (ends < width) | (sizes > width) | (stored < 0)
    odd = np.flatnonzero(is_odd)
    if len(odd):
        rows = np.flatnonzero(~is_odd)
        sizes, ends, stored = sizes[rows], ends[rows], stored[rows]
    return odd if _are_right(data, sizes, ends, stored, width) else every


def are_right(bodies: Bytes, stored: NDArray[np.int32]) -> bool:
    """Whether bodies of one size, a row each of a matrix, all fit their records' checksums."""
    if len(stored) and int(stored.min()) < 0:
        return False  # The highest bit is not stored: nobody's checksum.
    count, size = bodies.shape
    if not size:
        return not stored.any()
    if size > _EQUAL_SIZE_MAX or count < _ROWS_MIN:
        view = bodies.data.cast("B")
        sums = [crc32(view[at : at + size]) for at in range(0, count * size, size)]
        return bool((np.array(sums, np.uint32) & np.uint32(CRC_MASK) == stored).all())
    zero_crc = np.uint32(crc32(bytes(size)))
    step = max(_ROWS_MIN, _BYTES_AT_ONCE // size)
    pieces = [slice(at, at + step) for at in range(0, count, step)]
    return all(_do_sums_agree(bodies[p], stored[p].view(np.uint32) ^ zero_crc) for p in pieces)


def crcs_at(data: Bytes, starts: Positions, ends: Positions) -> NDArray[np.int64]:
    """The CRC-32 of each body `data[start:end]` as records store it: 31 bits."""
    if len(starts) and int((ends - starts).sum()) >= _SLICED_SIZE_MIN * len(starts):
        view = data.data
        bounds = zip(starts.tolist(), ends.tolist(), strict=True)
        sums = np.array([crc32(view[start:end]) for start, end in bounds], np.int64)
        return sums & CRC_MASK
    bodies, crcs = take_binary(data, starts, ends), array("I")
    for first in range(0, len(bodies), _OBJECTS_AT_ONCE):
        crcs.extend(map(crc32, byte_strings(bodies[first : first + _OBJECTS_AT_ONCE])))
    # An array keeps no integer objects: a fifth less.
    return np.frombuffer(crcs, np.uint32).astype(np.int64) & CRC_MASK


def _row_width(sizes: Positions) -> int:
    """How many bytes of a row are for the body; 0 when the bodies are better summed one by one.

    A row is a whole number of 8-byte words. There are few widths: each has its table of masks.
    """
    size_max, mean = int(sizes.max()), int(sizes.sum()) // len(sizes)
    width = min(size_max, max(2 * mean, 32))
    width += -width % 32
    return width if width <= _JOINT_SIZE_MAX else 0


def _are_right(
    data: Bytes, sizes: Positions, ends: Positions, stored: NDArray[np.int32], width: int
) -> bool:
    """Whether all bodies fit their checksums."""
    raw = stored.view(np.uint32) ^ _zero_crcs()[sizes]
    step = _BYTES_AT_ONCE // width
    pieces = [slice(at, at + step) for at in range(0, len(ends), step)]
    return all(_do_sums_agree(_rows(data, sizes[p], ends[p], width), raw[p]) for p in pieces)


def _rows(data: Bytes, sizes: Positions, ends: Positions, width: int) -> Bytes:
    """Bodies at the ends of rows of one width, behind zeros."""
    rows = pieces_at(data, ends - width, width).view("<u8")
    rows &= _body_masks(width).take(sizes, axis=0)
    return rows.view(np.uint8)


def _do_sums_agree(rows: Bytes, crcs: NDArray[np.uint32]) -> bool:
    """Whether the CRCs of the rows, from a register of 0, are these but for the highest bits."""
    groups = math.isqrt(len(rows)) + 1
    return _do_groups_agree(rows, crcs, groups) and _do_groups_agree(rows, crcs, groups + 1)


def _do_groups_agree(rows: Bytes, crcs: NDArray[np.uint32], groups: int) -> bool:
    width = rows.shape[1]
    texts = _sum_of_groups(rows, groups).tobytes()
    found = [
        crc32(texts[at : at + width], _REGISTER_ZERO) for at in range(0, groups * width, width)
    ]
    expected = _sum_of_groups(crcs[:, np.newaxis], groups)[:, 0]
    differing = np.array(found, np.uint32) ^ np.uint32(_REGISTER_ZERO) ^ expected
    return not (differing & np.uint32(CRC_MASK)).any()


def _sum_of_groups(rows: NDArray[np.unsignedinteger], groups: int) -> NDArray[np.unsignedinteger]:
    """The rows of each group XORed over each other; a group has every so manieth row."""
    width = rows.shape[1]
    whole = len(rows) // groups * groups
    # Long inner loops, whatever the width of a row.
    summed = np.bitwise_xor.reduce(rows[:whole].reshape(-1, groups * width), axis=0)
    sums: NDArray[np.unsignedinteger] = summed.reshape(groups, width)
    sums[: len(rows) - whole] ^= rows[whole:]
    return sums


@lru_cache(maxsize=1)
def _zero_crcs() -> NDArray[np.uint32]:
    """The CRC of `size` zero bytes, by which a register that starts at 0 differs."""
    crcs = [0]
    for _ in range(_JOINT_SIZE_MAX):
        crcs.append(zlib.crc32(b"\0", crcs[-1]))
    return np.array(crcs, np.uint32)


@lru_cache(maxsize=4)
def _body_masks(width: int) -> NDArray[np.uint64]:
    """For each size the row that keeps a body of that size, which stands at its end."""
    is_body = np.arange(width) >= width - np.arange(width + 1)[:, np.newaxis]
    masks: NDArray[np.uint64] = np.where(is_body, 0xFF, 0).astype(np.uint8).view("<u8")
    return masks
