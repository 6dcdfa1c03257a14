"""Records of the log -> entries of the key index: hashes of `topic#key` and log positions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_arrow.decode.layout import STORE_MS_AT, Layout, read_layout
from rocketmq_arrow.encode.key_hashes import index_value
from rocketmq_arrow.encode.key_hashes import key_entries as entries_of_block
from rocketmq_arrow.encode.record_block import RecordBlock
from rocketmq_arrow.kernels.gather import Bytes, Positions
from rocketmq_broker.storage.log.scan import ROWS_PER_CHUNK, topics_of
from rocketmq_wire.hashes import java_hash

Hashes = npt.NDArray[np.int32]


class KeyEntries(NamedTuple):
    """Columns of index entries, in the order of the records."""

    hashes: Hashes
    positions: Positions
    """Starts of the records in the data."""
    store_ms: Positions


def index_hash(topic: str, key: str) -> int:
    """The hash of a key in the index files."""
    return index_value(java_hash(f"{topic}#{key}"))


def key_entries(data: Bytes, starts: Positions, sizes: Positions) -> KeyEntries:
    """The entries of all keys of the records."""
    parts = []
    for first in range(0, len(starts), ROWS_PER_CHUNK):
        rows = slice(first, first + ROWS_PER_CHUNK)
        layout, _ = read_layout(data, starts[rows], sizes[rows], None)
        parts.append(_of_layout(layout))
    if not parts:
        nothing = np.empty(0, np.int64)
        return KeyEntries(nothing.astype(np.int32), nothing, nothing)
    return KeyEntries(*map(np.concatenate, zip(*parts, strict=True)))


def _of_layout(layout: Layout) -> KeyEntries:
    topics, codes = topics_of(layout)
    hashes, records = [], []
    for code, topic in enumerate(topics):
        rows = np.flatnonzero(codes == code)
        block = RecordBlock(
            layout.data,
            layout.starts[rows],
            layout.sizes[rows].astype(np.int32),
            np.empty(0, np.int64),
            topic,
            layout.text_start[rows],
        )
        found, indices = entries_of_block(block)
        hashes.append(found)
        records.append(rows[indices])
    all_hashes, all_records = np.concatenate(hashes), np.concatenate(records)
    if len(topics) > 1:
        order = np.argsort(all_records, kind="stable")
        all_hashes, all_records = all_hashes[order], all_records[order]
    store_ms = layout.int64(STORE_MS_AT)
    return KeyEntries(all_hashes, layout.starts[all_records], store_ms[all_records])
