"""Java's `String.hashCode` of many texts at once, as brokers hash tags and keys.

The hash is a polynomial in 31 over the characters, modulo 2^32. 31 has an inverse there, so with
S[i] = sum of c[j] * 31^-j for j < i the hash of the text in [a, b) is 31^(b-1) * (S[b] - S[a]):
one running sum over all texts side by side, 2 ns a character, whatever their lengths. Texts of
one length, as unique keys are, form a matrix that is multiplied with the powers: 0.5 ns.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.kernels.gather import Bytes, Positions, is_ascii, take_binary, values_of
from rocketmq_wire.hashes import java_hash

# The running sum goes over pieces of about this size, which stay in the cache.
_PIECE_SIZE: Final = 64 * 1024
# Texts are parts of property strings, so none is longer than 32,767 bytes.
_POWERS_COUNT: Final = _PIECE_SIZE + 32_768
_EQUAL_SIZE_MAX: Final = 64
_BASE: Final = 31
_MODULUS: Final = 2**32


def java_hashes(data: Bytes, starts: Positions, ends: Positions) -> NDArray[np.int32]:
    """The hashes of the UTF-8 texts `data[start:end]`; starts and ends ascend."""
    # Side by side first: between tags lie other properties, ten times their size.
    data, offsets = values_of(take_binary(data, starts, ends))
    starts, ends = offsets[:-1], offsets[1:]
    size = int(ends[0]) if len(ends) else 0
    if 0 < size <= _EQUAL_SIZE_MAX and is_ascii(data) and (ends - starts == size).all():
        return _hash_rows(data.reshape(-1, size))
    hashes = np.empty(len(starts), np.int32)
    first = 0
    while first < len(starts):
        stop = max(first + 1, int(np.searchsorted(ends, starts[first] + _PIECE_SIZE, "right")))
        rows = slice(first, stop)
        base, limit = int(starts[first]), int(ends[stop - 1])
        hashes[rows] = _hash_piece(data[base:limit], starts[rows] - base, ends[rows] - base)
        first = stop
    return hashes


def _hash_rows(rows: NDArray[np.uint8]) -> NDArray[np.int32]:
    powers, _ = _powers()
    factors = powers[: rows.shape[1]][::-1]
    hashes: NDArray[np.uint32] = np.einsum("ij,j->i", rows, factors)
    return hashes.view(np.int32)


def shifted_hashes(hashes: NDArray[np.int32], prefix: str, sizes: Positions) -> NDArray[np.int32]:
    """The hashes of `prefix + text` from those of texts of `sizes` UTF-16 units."""
    powers, _ = _powers()
    shifted = np.uint32(java_hash(prefix) % _MODULUS) * powers[sizes]
    joined: NDArray[np.uint32] = shifted + hashes.view(np.uint32)
    return joined.view(np.int32)


@lru_cache(maxsize=1)
def _powers() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """31^i and 31^-i modulo 2^32."""
    factors = np.full(_POWERS_COUNT, _BASE, np.uint32)
    inverses = np.full(_POWERS_COUNT, pow(_BASE, -1, _MODULUS), np.uint32)
    factors[0] = inverses[0] = 1
    return np.cumprod(factors, dtype=np.uint32), np.cumprod(inverses, dtype=np.uint32)


def _hash_piece(data: Bytes, starts: Positions, ends: Positions) -> NDArray[np.int32]:
    powers, inverses = _powers()
    if len(data) > len(powers):
        return _hash_singly(data, starts, ends)
    sums = np.zeros(len(data) + 1, np.uint32)
    np.cumsum(data * inverses[: len(data)], dtype=np.uint32, out=sums[1:])
    unsigned = (sums[ends] - sums[starts]) * powers[np.maximum(ends - 1, 0)]
    hashes = unsigned.view(np.int32)
    if not is_ascii(data):
        # Java hashes UTF-16 units: texts with other characters than ASCII are hashed singly.
        is_odd = np.concatenate([[0], np.cumsum(data >= 0x80)])
        rows = np.flatnonzero(is_odd[ends] != is_odd[starts])
        hashes[rows] = _hash_singly(data, starts[rows], ends[rows])
    return hashes


def _hash_singly(data: Bytes, starts: Positions, ends: Positions) -> NDArray[np.int32]:
    hashes = [
        java_hash(data[start:end].tobytes().decode("utf-8", "replace"))
        for start, end in zip(starts, ends, strict=True)
    ]
    return np.array(hashes, np.int32)
