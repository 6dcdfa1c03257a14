"""Ranges of the commit log -> columns of its records, and the whole records of a torn tail."""

from __future__ import annotations

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
from rocketmq_arrow.kernels.gather import Bytes, Mask, Positions, as_text, numbers_at, take_binary
from rocketmq_arrow.kernels.java_hashes import java_hashes
from rocketmq_broker.storage.disk.files import crc32
from rocketmq_broker.storage.log.blank_records import BLANK_TOPIC
from rocketmq_broker.storage.log.commit_log import FILLER, FILLER_MAGIC, RECORD_HEAD
from rocketmq_broker.storage.queues.consume_queue import SCHEDULE_TOPIC, entry_hashes
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.records.properties import TAGS
from rocketmq_wire.records.record import RECORD_SIZE_MIN

ROWS_PER_CHUNK: Final = 16_384
"""Number of records whose columns fit in the processor's cache."""


@dataclass(frozen=True, slots=True)
class QueueRows:
    """Records of one queue, in the order of the log."""

    topic: str
    queue_index: int
    rows: Positions
    """Indices in the scanned columns."""
    offsets: Positions


@dataclass(frozen=True, slots=True)
class Scanned:
    """Columns of whole records, in the order of the log."""

    positions: Positions
    sizes: Positions
    tag_hashes: npt.NDArray[np.int64]
    queues: tuple[QueueRows, ...]
    """Without records of deleted topics and blank records."""
    newest_ms: int
    dead_ends: Mapping[tuple[str, int], int]
    """The end of each queue's records of a deleted topic."""
    dead_count: int
    """Number of records of deleted topics."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Bytes that look like records, one behind the other."""

    starts: Positions
    end: int
    """End of the last record."""
    has_filler: bool
    """True if a filler record follows, so the log may continue in the next file."""

    @property
    def sizes(self) -> Positions:
        return np.diff(self.starts, append=self.end)

    def first(self, count: int) -> Chain:
        """The first `count` records; the whole chain if it has no more."""
        if count >= len(self.starts):
            return self
        return Chain(self.starts[:count], int(self.starts[count]), has_filler=False)


def split_filler(data: Bytes) -> Bytes:
    """A range that ends with its file, without the filler record at its end.

    Raises CorruptRecordError if the records do not lead to the end.
    """
    try:
        starts, _ = record_bounds(data)
    except CorruptRecordError as error:
        # A filler may be smaller than a record.
        if is_filler(data, error.position):
            return data[: error.position]
        raise
    if len(starts) and is_filler(data, int(starts[-1])):
        return data[: int(starts[-1])]
    return data


def is_filler(data: Bytes, position: int) -> bool:
    """True if a filler record takes the data from a position to its end."""
    rest = len(data) - position
    return rest >= FILLER.size and FILLER.unpack_from(data.data, position) == (rest, FILLER_MAGIC)


def scan(data: Bytes, base: int, dead_before: Mapping[str, int]) -> Iterator[Scanned]:
    """The records of a range that begins at log position `base`, some thousand at a time.

    Raises CorruptRecordError if the range is not whole sound records of these positions.
    """
    starts, sizes = record_bounds(data, where="commitlog")
    for first in range(0, len(starts), ROWS_PER_CHUNK):
        rows = slice(first, first + ROWS_PER_CHUNK)
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
    """The columns of sound records that consume queues need."""
    positions = layout.starts + base
    properties = PropertyScan(layout.data, layout.text_start, layout.text_end)
    dead: dict[tuple[str, int], Positions] = {}
    queues = tuple(_by_queue(layout, positions, dead_before, dead))
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
        dead_ends={key: int(offsets[-1]) + 1 for key, offsets in dead.items()},
        dead_count=sum(map(len, dead.values())),
    )


def whole_prefix(data: Bytes, base: int) -> tuple[Chain, Layout]:
    """The sound records at the start of a torn tail."""
    chain, layout = sound_prefix(data, base)
    topic_starts = layout.body_end + 1 + _is_v2(layout)
    columns = (topic_starts, layout.text_start, layout.text_end)
    view = data.data
    for row, bounds in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        topic, text, text_end = bounds
        if _has_hole(bytes(view[topic : text - 2]), bytes(view[text:text_end])):
            return chain.first(row), layout.rows(slice(row))
    return chain, layout


def sound_prefix(
    data: Bytes, base: int, position: int = 0, count_max: int | None = None
) -> tuple[Chain, Layout]:
    """The records from a position on, before the first that is damaged."""
    chain = chain_of(data, position, count_max)
    layout, damaged = read_layout(data, chain.starts, chain.sizes, None)
    # The records before a damaged one may be torn, too: a crash loses pages in any order.
    wrong = np.flatnonzero(~are_sound(layout, base))
    count = min((int(rows[0]) for rows in (damaged, wrong) if len(rows)), default=len(layout))
    return chain.first(count), layout.rows(slice(count))


def are_sound(layout: Layout, base: int) -> Mask:
    """True for records of their own log position, with a body that has its checksum."""
    view = layout.data.data
    bodies = zip(layout.body_start.tolist(), layout.body_end.tolist(), strict=True)
    checksums = np.array([crc32(view[begin:end], 0) for begin, end in bodies], np.int64)
    is_sound: Mask = (checksums & CRC_MASK) == (layout.int32(CRC_AT) & CRC_MASK)
    is_sound &= layout.int64(PHYSICAL_OFFSET_AT) == layout.starts + base
    return is_sound


def _has_hole(topic: bytes, properties: bytes) -> bool:
    # No checksum covers topic and properties. Bytes that did not reach the disk read as zeros, so a
    # zero byte means a torn record. A record behind the mark was never acknowledged, so it may be
    # cut even if it was whole.
    return not topic or b"\x00" in topic or b"\x00" in properties


def chain_of(data: Bytes, position: int = 0, count_max: int | None = None) -> Chain:
    """Follow the sizes of records from a position on, as long as they look like records."""
    view, end = data.data, len(data)
    starts: list[int] = []
    has_filler = False
    while end - position >= RECORD_HEAD.size and (count_max is None or len(starts) < count_max):
        size, magic = RECORD_HEAD.unpack_from(view, position)
        has_filler = magic == FILLER_MAGIC and size == end - position
        if has_filler or magic not in (MAGIC_V1, MAGIC_V2):
            break
        if not RECORD_SIZE_MIN <= size <= end - position:
            break
        starts.append(position)
        position += size
    return Chain(np.array(starts, np.int64), position, has_filler)


def _by_queue(
    layout: Layout,
    positions: Positions,
    dead_before: Mapping[str, int],
    dead: dict[tuple[str, int], Positions],
) -> Iterator[QueueRows]:
    """The living records by queue; `dead` gets the offsets of dead ones."""
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
            is_dead = positions[rows] < dead_until
            dead[topic, int(queue_indexes[rows[0]])] = offsets[rows[is_dead]]
            rows = rows[~is_dead]
            if not len(rows):
                continue
        yield QueueRows(topic, int(queue_indexes[rows[0]]), rows, offsets[rows])


def topics_of(layout: Layout) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The names of the topics, and for each record the index of its name."""
    names = take_binary(layout.data, layout.body_end + 1 + _is_v2(layout), layout.text_start - 2)
    encoded = as_text(names).dictionary_encode()
    # `to_numpy` would import pandas if it is installed, which takes seconds and 50 MB.
    _, indices = encoded.indices.buffers()
    codes = np.frombuffer(indices, np.int32, len(encoded)).astype(np.int64)
    return encoded.dictionary.to_pylist(), codes


def _is_v2(layout: Layout) -> Mask:
    """True for records whose topic's size takes two bytes."""
    is_v2: Mask = numbers_at(layout.data, layout.starts + 4, ">u4") == MAGIC_V2
    return is_v2


def _tag_hashes(properties: PropertyScan) -> npt.NDArray[np.int64]:
    """Java hash of each record's tag, 0 without a tag."""
    text, starts, ends, missing = properties.find_bounds(TAGS)
    hashes = java_hashes(text, starts, ends).astype(np.int64)
    hashes[missing] = 0
    return hashes
