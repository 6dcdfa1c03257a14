"""Hashes the keys of a block's records for RocketMQ's IndexFile.

A record is found by `topic#key` for its UNIQ_KEY and for each word of its KEYS. The index holds the
absolute value of Java's hash of that text, and 0 for the one value that has none.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.decode.property_scan import PropertyScan
from rocketmq_arrow.encode.record_block import RecordBlock
from rocketmq_arrow.kernels.gather import Bytes, Mask, Positions, is_ascii
from rocketmq_arrow.kernels.java_hashes import java_hashes, shifted_hashes
from rocketmq_wire.records.properties import KEYS, UNIQUE_KEY

_KEY_SEPARATOR: Final = 0x20
_INT32_MIN: Final = -(2**31)


def key_entries(block: RecordBlock) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """(hash of `topic#key`, index of the record) of every key, in the records' order."""
    scan = PropertyScan(block.buffer, block.text_starts, block.starts + block.sizes)
    found_hashes = []
    found_records = []
    for name in (UNIQUE_KEY, KEYS):
        text, starts, ends, missing = scan.find_bounds(name)
        records = np.flatnonzero(~missing)
        starts, ends = starts[records], ends[records]
        if name == KEYS:
            starts, ends, rows = _words(text, starts, ends)
            records = records[rows]
        hashes = java_hashes(text, starts, ends)
        sizes = _utf16_sizes(text, starts, ends)
        found_hashes.append(shifted_hashes(hashes, f"{block.topic}#", sizes))
        found_records.append(records)
    records = np.concatenate(found_records)
    # Stable: of one record the unique key comes first, as the broker writes it.
    order = np.argsort(records, kind="stable")
    return _index_values(np.concatenate(found_hashes)[order]), records[order]


def index_value(java_hash: int) -> int:
    """What the index holds for a hash; see `key_entries`."""
    return 0 if java_hash == _INT32_MIN else abs(java_hash)


def _index_values(hashes: NDArray[np.int32]) -> NDArray[np.int32]:
    # abs() of the smallest value is itself: Java's broker then takes 0.
    return np.where(hashes == _INT32_MIN, np.int32(0), np.abs(hashes))


def _words(
    text: Bytes, starts: Positions, ends: Positions
) -> tuple[Positions, Positions, Positions]:
    """The words of texts that are separated by spaces, with the index of each word's text."""
    spaces = _positions_within(text == _KEY_SEPARATOR, starts, ends)
    if not len(spaces):
        return starts, ends, np.arange(len(starts))
    rows = np.searchsorted(starts, spaces, "right") - 1
    word_starts = np.concatenate([starts, spaces + 1])
    word_ends = np.concatenate([spaces, ends])
    word_rows = np.concatenate([np.arange(len(starts)), rows])
    # Sorted, the k-th start belongs to the k-th end: words and spaces alternate within each text.
    word_starts.sort()
    word_ends.sort()
    word_rows.sort()
    is_word = word_ends > word_starts
    return word_starts[is_word], word_ends[is_word], word_rows[is_word]


def _positions_within(found: Mask, starts: Positions, ends: Positions) -> Positions:
    """The found places that are in one of the ranges."""
    positions = np.flatnonzero(found)
    if not len(positions) or not len(starts):
        return positions[:0]
    rows = np.searchsorted(starts, positions, "right") - 1
    return positions[(rows >= 0) & (positions < ends[rows])]


def _utf16_sizes(text: Bytes, starts: Positions, ends: Positions) -> Positions:
    """The texts' sizes as Java counts them."""
    sizes = ends - starts
    if is_ascii(text):
        return sizes
    rows = np.flatnonzero(np.add.reduceat(text >= 0x80, starts) if len(starts) else sizes)
    for row in rows:
        word = text[starts[row] : ends[row]].tobytes().decode("utf-8", "replace")
        sizes[row] = len(word.encode("utf-16-le", "surrogatepass")) // 2
    return sizes
