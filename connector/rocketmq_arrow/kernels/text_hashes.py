"""Two 64-bit hashes of many texts at once: SipHash-2-4, and a quick one that tells rows apart.

The texts are taken eight bytes at a time: step `n` treats the n-th word of every text that has one.
Longer texts stand first, so that those are a slice. A word costs the quick hash 8 ns, SipHash 50.

The quick hash takes long texts in blocks of 64 or 512 bytes, as rows of a matrix: 1.5 ns a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketmq_arrow.kernels.gather import Bytes, Positions, overlapping, pieces_at, values_of

Hashes = NDArray[np.uint64]

_WORD: Final = 8
# Masks for the last word of a text, by the number of its bytes.
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
# Texts at a time: these stay in the cache with all their steps.
_ROWS_AT_ONCE: Final = 4_096
# Texts of at least this many bytes are taken in blocks of that size, the largest that fits.
_BLOCK_SIZES: Final = (512, 64)
# A matrix of so much, and its like, stay in the cache, and come from memory that was used before.
_BYTES_AT_ONCE: Final = 256 * 1024
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_FINISHERS: Final = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_HALF: Final = np.uint64(32)
_LOWER: Final = np.uint64(0xFFFFFFFF)
_SIP_KEY: Final = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
_SIP_START: Final = (
    0x736F6D6570736575,
    0x646F72616E646F6D,
    0x6C7967656E657261,
    0x7465646279746573,
)


def content_hashes(data: Bytes, starts: Positions, ends: Positions, seeds: Hashes) -> Hashes:
    """A hash of each `data[start:end]` that continues its seed; not for hostile content."""
    sizes = ends - starts
    hashes: Hashes = seeds + sizes.astype(np.uint64) * _MULTIPLIER
    if not len(sizes):
        return hashes
    largest, smallest = int(sizes.max()), int(sizes.min())
    for block_size in _BLOCK_SIZES:
        if largest < block_size:
            continue
        if smallest >= block_size:
            _absorb_blocks(data, starts, sizes, hashes, block_size)
            return _finished(hashes)
        rows = np.flatnonzero(sizes >= block_size)
        part = hashes[rows]
        _absorb_blocks(data, starts[rows], sizes[rows], part, block_size)
        hashes[rows] = part
        # What is left is shorter than a block.
        sizes = np.where(sizes >= block_size, 0, sizes)
        largest = int(sizes.max())
    _absorb_words(data, starts, sizes, hashes)
    return _finished(hashes)


def _absorb_blocks(
    data: Bytes, starts: Positions, sizes: Positions, hashes: Hashes, block_size: int
) -> None:
    """Absorbs texts of a block and more; the last block of each ends with the text."""
    rows_at_once = _BYTES_AT_ONCE // block_size
    for first in range(0, len(starts), rows_at_once):
        rows = slice(first, first + rows_at_once)
        begins, last = starts[rows], starts[rows] + sizes[rows] - block_size
        longest = int((last - begins).max())
        for begin in range(0, longest + block_size, block_size):
            # Texts whose last block was behind this one are over.
            under_way = np.flatnonzero(begins + begin < last + block_size)
            if len(under_way) == len(begins):
                state = hashes[rows]
                _absorb_block(data, np.minimum(begins + begin, last), state, block_size)
            else:
                state = hashes[rows][under_way]
                positions = np.minimum(begins[under_way] + begin, last[under_way])
                _absorb_block(data, positions, state, block_size)
                hashes[rows][under_way] = state


def _absorb_block(data: Bytes, positions: Positions, state: Hashes, block_size: int) -> None:
    """NH, as in UMAC: the halves of each word, under its key, are multiplied, and all added up."""
    words = pieces_at(data, positions, block_size).view(np.uint64)
    words ^= _KEYS[: words.shape[1]]
    upper = words >> _HALF
    words &= _LOWER
    state ^= np.einsum("ij,ij->i", words, upper)
    state *= _MULTIPLIER
    state ^= state >> _HALF


def _absorb_words(data: Bytes, starts: Positions, sizes: Positions, hashes: Hashes) -> None:
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    for first in range(0, len(starts), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        order, words = _words(padded, starts[rows], sizes[rows])
        state = hashes[rows][order]
        for word in words:
            part = state[: len(word)]
            part ^= word
            part *= _MULTIPLIER
            part ^= part >> _HALF
        hashes[rows][order] = state


def sip_hashes(texts: pa.Array) -> NDArray[np.int64]:
    """SipHash-2-4 of each UTF-8 text under the key 00…0F, as RocketMQ's clients hash groups."""
    data, offsets = values_of(texts)
    sizes = offsets[1:] - offsets[:-1]
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    order, words = _words(padded, offsets[:-1], sizes)
    v0, v1, v2, v3 = (
        np.full(len(texts), start ^ _SIP_KEY[index & 1], np.uint64)
        for index, start in enumerate(_SIP_START)
    )
    last = (sizes[order].astype(np.uint64) & np.uint64(0xFF)) << np.uint64(56)
    for word in words:
        count = len(word)
        is_whole = sizes[order[:count]] >= _WORD
        # The words of a text's end wait for its length; `sizes` counts what is left of each.
        whole = int(np.count_nonzero(is_whole))
        last[whole:count] |= word[whole:]
        _absorb((v0[:whole], v1[:whole], v2[:whole], v3[:whole]), word[:whole])
        sizes[order[:count]] -= _WORD
    _absorb((v0, v1, v2, v3), last)
    v2 ^= np.uint64(0xFF)
    for _ in range(4):
        _sip_round(v0, v1, v2, v3)
    hashes = np.empty(len(texts), np.uint64)
    hashes[order] = v0 ^ v1 ^ v2 ^ v3
    return hashes.view(np.int64)


def _words(
    padded: Bytes, starts: Positions, sizes: Positions
) -> tuple[Positions, Iterator[Hashes]]:
    """The order of the texts, longest first, and the n-th words of those that have one."""
    order = np.argsort(-sizes, kind="stable")
    starts, left = starts[order], sizes[order]
    at = overlapping(padded, "<u8")

    def steps() -> Iterator[Hashes]:
        # Ascending for the search: how many texts have a word at this step.
        negative = -left
        for begin in range(0, int(left[0]) if len(left) else 0, _WORD):
            count = int(np.searchsorted(negative, -begin, "left"))
            words = at[starts[:count] + begin]
            if left[count - 1] - begin < _WORD:
                words &= _MASKS[np.minimum(left[:count] - begin, _WORD)]
            yield words

    return order, steps()


def _finished(hashes: Hashes) -> Hashes:
    for factor in _FINISHERS:
        hashes ^= hashes >> _HALF
        hashes *= factor
    hashes ^= hashes >> _HALF
    return hashes


def _keys(count: int) -> Hashes:
    """Numbers that look like chance, the same ones always."""
    keys = np.arange(1, count + 1, dtype=np.uint64) * _MULTIPLIER
    return _finished(keys)


_KEYS: Final = _keys(_BLOCK_SIZES[0] // _WORD)


def _absorb(state: tuple[Hashes, Hashes, Hashes, Hashes], words: Hashes) -> None:
    v0, v1, v2, v3 = state
    v3 ^= words
    _sip_round(v0, v1, v2, v3)
    _sip_round(v0, v1, v2, v3)
    v0 ^= words


def _sip_round(v0: Hashes, v1: Hashes, v2: Hashes, v3: Hashes) -> None:
    v0 += v1
    v2 += v3
    _rotate(v1, 13)
    _rotate(v3, 16)
    v1 ^= v0
    v3 ^= v2
    _rotate(v0, 32)
    v2 += v1
    v0 += v3
    _rotate(v1, 17)
    _rotate(v3, 21)
    v1 ^= v2
    v3 ^= v0
    _rotate(v2, 32)


def _rotate(values: Hashes, bits: int) -> None:
    values[:] = values << np.uint64(bits) | values >> np.uint64(64 - bits)
