"""Stretches of the commit log -> columns of its records, and how far a torn tail is whole."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_arrow.decode.boundaries import MAGIC_V1, MAGIC_V2, record_bounds
from rocketmq_arrow.decode.layout import (
    CRC_AT,
    CRC_MASK,
    PHYSICAL_OFFSET_AT,
    QUEUE_AT,
    QUEUE_OFFSET_AT,
    STORE_MS_AT,
    Layout,
    read_layout,
)
from rocketmq_arrow.decode.property_scan import PropertyScan
from rocketmq_arrow.kernels.gather import as_text, numbers_at, take_binary
from rocketmq_arrow.kernels.java_hashes import java_hashes
from rocketmq_broker.storage.disk.checksum import crc32
from rocketmq_broker.storage.log.blank_records import BLANK_TOPIC
from rocketmq_broker.storage.log.commit_log import FILLER, FILLER_MAGIC
from rocketmq_broker.storage.queues.due_times import SCHEDULE_TOPIC, entry_hashes
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.records.properties import TAGS
from rocketmq_wire.records.record import RECORD_SIZE_MIN

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]

_ROWS_PER_CHUNK: Final = 16_384
"""Columns of this many records stay in the processor's cache."""
RECORD_HEAD: Final = struct.Struct(">iI")
"""A record's size and magic number."""


@dataclass(frozen=True, slots=True)
class QueueRows:
    """The records of one queue, in the order of the log."""

    topic: str
    queue_index: int
    rows: Positions
    """Indices into the scanned columns."""
    offsets: Positions


@dataclass(frozen=True, slots=True)
class Scanned:
    """Whole records of one stretch, by log position."""

    positions: Positions
    sizes: Positions
    tag_hashes: npt.NDArray[np.int64]
    queues: tuple[QueueRows, ...]
    """Without the records of deleted topics, and without blank ones."""
    newest_ms: int


def split_filler(data: Bytes) -> Bytes:
    """A stretch that ends with its file, without the filler record at its end.

    Raises CorruptRecordError when the records do not lead to the end.
    """
    try:
        starts, _ = record_bounds(data)
    except CorruptRecordError as error:
        # Fillers may be smaller than any record.
        if is_filler(data, error.position):
            return data[: error.position]
        raise
    if len(starts) and is_filler(data, int(starts[-1])):
        return data[: int(starts[-1])]
    return data


def is_filler(data: Bytes, position: int) -> bool:
    """True if a filler record lasts from a position to the end of the data."""
    rest = len(data) - position
    return rest >= FILLER.size and FILLER.unpack_from(data.data, position) == (rest, FILLER_MAGIC)


def scan(data: Bytes, base: int, dead_before: Mapping[str, int]) -> Iterator[Scanned]:
    """The records of a stretch that begins at log position `base`, some thousand at a time.

    Raises CorruptRecordError when the stretch is not whole, sound records where they say they are.
    """
    starts, sizes = record_bounds(data, where="commitlog")
    for first in range(0, len(starts), _ROWS_PER_CHUNK):
        rows = slice(first, first + _ROWS_PER_CHUNK)
        layout, damaged = read_layout(data, starts[rows], sizes[rows], None)
        if len(damaged):
            row = first + int(damaged[0])
            raise CorruptRecordError("commitlog", base + int(starts[row]), "the record is damaged")
        wrong = np.flatnonzero(layout.int64(PHYSICAL_OFFSET_AT) != layout.starts + base)
        if len(wrong):
            position = base + int(layout.starts[wrong[0]])
            raise CorruptRecordError("commitlog", position, "the record is of another position")
        yield columns_of(layout, base, dead_before)


def columns_of(layout: Layout, base: int, dead_before: Mapping[str, int]) -> Scanned:
    """What consume queues need to know of sound records."""
    positions = layout.starts + base
    properties = PropertyScan(layout.data, layout.text_start, layout.text_end)
    queues = tuple(_by_queue(layout, positions, dead_before))
    tag_hashes, store_ms = _tag_hashes(properties), layout.int64(STORE_MS_AT)
    for part in queues:
        if part.topic == SCHEDULE_TOPIC:
            tag_hashes[part.rows] = entry_hashes(
                part.topic, part.queue_index, store_ms[part.rows], tag_hashes[part.rows]
            )
    return Scanned(
        positions=positions,
        sizes=layout.sizes,
        tag_hashes=tag_hashes,
        queues=queues,
        newest_ms=int(store_ms.max(initial=0)),
    )


def whole_prefix(data: Bytes, base: int) -> tuple[Positions, Positions, bool]:
    """Starts and sizes of the sound records that a torn tail begins with.

    The last value says whether a filler record follows them, so the log may go on in the next file.
    """
    starts, end, is_full = chain(data)
    sizes = np.diff(starts, append=end)
    layout, damaged = read_layout(data, starts, sizes, None)
    if len(damaged):
        return _cut(starts, sizes, int(damaged[0]))
    wrong = np.flatnonzero(layout.int64(PHYSICAL_OFFSET_AT) != starts + base)
    count = int(wrong[0]) if len(wrong) else len(starts)
    checksums = (layout.int32(CRC_AT) & CRC_MASK).tolist()
    topic_starts = layout.topic_start + 1 + _is_v2(layout)
    places = (layout.body_start, layout.body_end, topic_starts, layout.text_start, layout.text_end)
    view = data.data
    for row, (body, body_end, topic, text, text_end) in enumerate(
        zip(*(place[:count].tolist() for place in places), strict=True)
    ):
        is_body_whole = crc32(view[body:body_end], 0) & CRC_MASK == checksums[row]
        if not is_body_whole or _has_hole(
            bytes(view[topic : text - 2]), bytes(view[text:text_end])
        ):
            return _cut(starts, sizes, row)
    if count < len(starts):
        return _cut(starts, sizes, count)
    return starts, sizes, is_full


def _cut(starts: Positions, sizes: Positions, count: int) -> tuple[Positions, Positions, bool]:
    return starts[:count], sizes[:count], False


def _has_hole(topic: bytes, properties: bytes) -> bool:
    # No checksum covers topic and properties. What the disk has not written reads as zeros, so a
    # zero byte there means a torn record. Nobody was told that a record behind the mark is on the
    # disk, so a false alarm may cut it.
    return not topic or b"\x00" in topic or b"\x00" in properties


def chain(
    data: Bytes, position: int = 0, count_max: int | None = None
) -> tuple[Positions, int, bool]:
    """What looks like a row of records: their places, its end, and whether a filler ends it."""
    view, end = data.data, len(data)
    starts: list[int] = []
    while end - position >= RECORD_HEAD.size and (count_max is None or len(starts) < count_max):
        size, magic = RECORD_HEAD.unpack_from(view, position)
        if magic == FILLER_MAGIC and size == end - position:
            return np.array(starts, np.int64), position, True
        if magic not in (MAGIC_V1, MAGIC_V2) or not RECORD_SIZE_MIN <= size <= end - position:
            break
        starts.append(position)
        position += size
    return np.array(starts, np.int64), position, False


def _by_queue(
    layout: Layout, positions: Positions, dead_before: Mapping[str, int]
) -> Iterator[QueueRows]:
    topics, codes = topics_of(layout)
    queue_indexes = layout.int32(QUEUE_AT).astype(np.int64)
    offsets = layout.int64(QUEUE_OFFSET_AT)
    keys = (codes << 32) | queue_indexes
    order = np.argsort(keys, kind="stable")
    cuts = np.flatnonzero(np.diff(keys[order])) + 1
    for rows in np.split(order, cuts):
        if not len(rows):
            continue
        topic = topics[int(codes[rows[0]])]
        if topic == BLANK_TOPIC:
            continue
        dead_until = dead_before.get(topic, 0)
        if positions[rows[0]] < dead_until:
            rows = rows[positions[rows] >= dead_until]
            if not len(rows):
                continue
        yield QueueRows(topic, int(queue_indexes[rows[0]]), rows, offsets[rows])


def topics_of(layout: Layout) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The topics' names, and the index of each record's."""
    names = take_binary(layout.data, layout.topic_start + 1 + _is_v2(layout), layout.text_start - 2)
    encoded = as_text(names).dictionary_encode()
    # Not `to_numpy`: that imports pandas wherever it is installed, seconds and 50 MB for nothing.
    _, indices = encoded.indices.buffers()
    codes = np.frombuffer(indices, np.int32, len(encoded)).astype(np.int64)
    return encoded.dictionary.to_pylist(), codes


def _is_v2(layout: Layout) -> npt.NDArray[np.bool_]:
    """Where the topic's size takes two bytes."""
    is_v2: npt.NDArray[np.bool_] = numbers_at(layout.data, layout.starts + 4, ">u4") == MAGIC_V2
    return is_v2


def _tag_hashes(properties: PropertyScan) -> npt.NDArray[np.int64]:
    """The Java hash of each record's tag, 0 without one."""
    text, starts, ends, missing = properties.find_bounds(TAGS)
    hashes = java_hashes(text, starts, ends).astype(np.int64)
    hashes[missing] = 0
    return hashes
