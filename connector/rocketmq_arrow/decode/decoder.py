"""Turns pull bodies into record batches of the wanted columns, a chunk of records at a time.

What is checked: the chain of record sizes (always an error when broken), then for each record its
magic, inner sizes, topic, queue, the order of queue offsets, the body's checksum and decompression.
A record that fails a check is damaged, and `CorruptPolicy` decides what happens to it. Records
outside the wanted range or tags are dropped unchecked.

Nanoseconds of one core a record (260 bytes, default columns, chunks of 10,000): 90 with checksums
and 70 without when a body's records are all uniform (see `uniform_records`); 170 and 120 when only
most are; 340 and 250 when the sizes of bodies, tags and keys differ. Then a chunk costs some 0.5
ms, however few rows it has.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_arrow.decode.boundaries import record_bounds, refuse_other_sizes
from rocketmq_arrow.decode.checksums import wrong_bodies
from rocketmq_arrow.decode.column_builders import ColumnValues
from rocketmq_arrow.decode.inflate import INFLATED_SIZE_MAX, inflate
from rocketmq_arrow.decode.layout import (
    CRC_AT,
    QUEUE_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    Layout,
    describe_damage,
    read_layout,
    unread_layout,
)
from rocketmq_arrow.decode.property_template import RowTemplate
from rocketmq_arrow.decode.uniform_records import UniformReader
from rocketmq_arrow.kernels.gather import (
    Bytes,
    Mask,
    Positions,
    numbers_at,
    replace_rows,
    take_binary,
)
from rocketmq_arrow.kernels.numpy_arrays import array_of, mask_of, text_array
from rocketmq_arrow.source_columns import check_schema
from rocketmq_wire.errors import CorruptRecordError, InflateError
from rocketmq_wire.model import Buffer, QueueId
from rocketmq_wire.records.record import FLAG_COMPRESSED, FLAG_INNER_BATCH

# Records of a chunk and its columns stay in the cache: twice as fast as 200,000-record chunks.
ROWS_MAX: Final = 10_000
CHUNK_SIZE_MAX: Final = 4 * 1024 * 1024
# A batch ends when its inflated bodies reach this; with the largest body it stays below 2^31.
_INFLATED_BATCH_SIZE_MAX: Final = 16 * 1024 * 1024


class CorruptPolicy(enum.Enum):
    """What to do with a damaged record."""

    FAIL = "fail"
    SKIP = "skip"
    EMIT = "emit"


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """What to decode; `schema` is exactly what the batches will have. Raises ValueError."""

    schema: pa.Schema
    check_crc: bool = True
    corrupt: CorruptPolicy = CorruptPolicy.FAIL
    tags: frozenset[str] | None = None
    rows_max: int = ROWS_MAX
    body_size_max: int = INFLATED_SIZE_MAX

    def __post_init__(self) -> None:
        check_schema(self.schema)
        if self.rows_max < 1:
            raise ValueError(f"rows_max must be at least 1, got {self.rows_max}")
        # Beyond this a batch that is full could not take one more body: offsets are int32.
        if not 0 < self.body_size_max <= 2**30:
            raise ValueError(f"body_size_max must be within 1 and 2^30, got {self.body_size_max}")


@dataclass(slots=True)
class _Chunk:
    """The records that are decoded together, of which some may be damaged."""

    queue: QueueId
    base: int
    """Where the chunk starts in the body."""
    data: Bytes
    starts: Positions
    sizes: Positions
    layout: Layout = field(init=False)
    """The rows that are wanted and structurally sound."""
    lost: Positions = field(init=False)
    """Indices of the wanted records that are structurally damaged."""
    reasons: dict[int, str] = field(default_factory=dict)
    """Damage of rows of the layout."""

    def describe_lost(self, index: int) -> str:
        start, size = int(self.starts[index]), int(self.sizes[index])
        return describe_damage(self.data, start, size, self.queue.topic.encode())


class Decoder:
    """Decodes pull bodies with one set of options. Counts what it skips."""

    def __init__(self, options: DecodeOptions) -> None:
        self._options = options
        self._wants_body = "body" in options.schema.names
        self._tags = None if options.tags is None else text_array(sorted(options.tags))
        self._template = RowTemplate()
        self._uniform = UniformReader()
        self.skipped = 0
        """Damaged records left out under CorruptPolicy.SKIP."""

    def decode(
        self, queue: QueueId, start: int, end: int, body: Buffer, sizes: Buffer | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields the records of `[start, end)` in `body`; `sizes` as the transport gave them.

        Raises CorruptRecordError if the framing is torn, or a record is damaged under FAIL.
        """
        data = np.frombuffer(body, np.uint8)
        uniform = self._decode_uniform(queue, (start, end), data, sizes)
        if uniform is not None:
            yield uniform
            return
        starts, record_sizes = record_bounds(body, sizes, where=str(queue), compares_sizes=False)
        newest = -1
        for first, stop in _chunk_bounds(starts, starts + record_sizes, self._options.rows_max):
            base = int(starts[first])
            chunk_size = int(starts[stop - 1] + record_sizes[stop - 1]) - base
            chunk_starts, chunk_data = starts[first:stop] - base, data[base : base + chunk_size]
            chunk = _Chunk(queue, base, chunk_data, chunk_starts, record_sizes[first:stop])
            newest = self._open_chunk(chunk, (start, end), newest)
            yield from self._decode_chunk(chunk)

    def _decode_uniform(
        self, queue: QueueId, wanted: tuple[int, int], data: Bytes, sizes: Buffer | None
    ) -> pa.RecordBatch | None:
        """The whole body as one batch, if its records are uniform and sound."""
        if self._tags is not None or len(data) > CHUNK_SIZE_MAX:
            return None
        records = self._uniform.read(queue, wanted, data, sizes, self._options.rows_max)
        if records is None:
            return None
        bodies = None
        if self._wants_body or self._options.check_crc:
            bodies = records.bodies()
        if self._options.check_crc and not records.are_right(bodies):
            return None
        values = ColumnValues(queue, records.layout, bodies, uniform=records)
        return self._batch(values)

    def _open_chunk(self, chunk: _Chunk, wanted: tuple[int, int], newest: int) -> int:
        """Finds the wanted rows and checks their structure; returns the newest offset so far."""
        data, starts, sizes = chunk.data, chunk.starts, chunk.sizes
        layout, lost = read_layout(data, starts, sizes, chunk.queue.topic.encode())
        # From the gathered headers a comparison costs 2 ns a record, from the body 9.
        whole = unread_layout(data, starts, sizes) if len(lost) else layout
        refuse_other_sizes(starts + chunk.base, sizes, whole.field(">i4", 0), str(chunk.queue))
        offsets = whole.int64(QUEUE_OFFSET_AT)
        is_astray, newest = _out_of_order(offsets, newest)
        # The offset of a record out of order cannot be trusted: the record is checked, not dropped.
        is_wanted = ((offsets >= wanted[0]) & (offsets < wanted[1])) | is_astray
        is_sound = np.ones(len(starts), np.bool_)
        is_sound[lost] = False
        chunk.lost = lost[is_wanted[lost]]
        rows = np.flatnonzero(is_wanted & is_sound)
        if not is_wanted[is_sound].all():
            layout = layout.rows(is_wanted[is_sound])
        chunk.layout = layout
        for row in np.flatnonzero(is_astray[rows]):
            chunk.reasons[int(row)] = f"queue offset {offsets[rows[row]]} is out of order"
        self._judge_headers(chunk)
        return newest

    def _judge_headers(self, chunk: _Chunk) -> None:
        layout, queue = chunk.layout, chunk.queue
        queues = layout.field(">i4", QUEUE_AT)
        for row in np.flatnonzero(queues != queue.index):
            chunk.reasons.setdefault(int(row), f"the record is of queue {queues[row]}")
        for row in np.flatnonzero(layout.header[:, SYS_FLAG_AT + 3] & FLAG_INNER_BATCH):
            chunk.reasons.setdefault(
                int(row), "the record is an inner batch (BatchCQ topic), which is not supported"
            )

    def _decode_chunk(self, chunk: _Chunk) -> Iterator[pa.RecordBatch]:
        self._keep_tags(chunk)
        layout = chunk.layout
        bodies = None
        if self._wants_body:
            bodies = take_binary(layout.data, layout.body_start, layout.body_end)
        if self._options.check_crc:
            stored = layout.int32(CRC_AT)
            for row in wrong_bodies(layout.data, layout.body_start, layout.body_end, stored):
                chunk.reasons.setdefault(int(row), "the body fails its checksum")
        self._fail_if_asked(chunk)
        for rows, inflated in self._inflated_groups(chunk, bodies):
            yield from self._build(chunk, rows, bodies, inflated)
        yield from self._build_lost(chunk)

    def _keep_tags(self, chunk: _Chunk) -> None:
        """Drops the rows of other tags: the broker compares hashes, and hashes collide."""
        if self._tags is None or not len(chunk.layout):
            return
        values = ColumnValues(chunk.queue, chunk.layout, None, template=self._template)
        is_kept = pc.is_in(values.scan.find("TAGS"), value_set=self._tags)
        if pc.all(is_kept).as_py():
            return
        kept = np.flatnonzero(mask_of(is_kept))
        new_rows = {int(row): new for new, row in enumerate(kept)} if chunk.reasons else {}
        chunk.reasons = {
            new_rows[row]: reason for row, reason in chunk.reasons.items() if row in new_rows
        }
        chunk.layout = chunk.layout.rows(kept)

    def _fail_if_asked(self, chunk: _Chunk) -> None:
        if self._options.corrupt is not CorruptPolicy.FAIL:
            return
        found = [(int(chunk.layout.starts[row]), reason) for row, reason in chunk.reasons.items()]
        if len(chunk.lost):
            first = int(chunk.lost[0])
            found.append((int(chunk.starts[first]), chunk.describe_lost(first)))
        if found:
            start, reason = min(found)
            raise self._error(chunk, start, reason)

    def _error(self, chunk: _Chunk, start: int, reason: str) -> CorruptRecordError:
        position = np.array([start + QUEUE_OFFSET_AT])
        offset = int(numbers_at(chunk.data, position, ">i8")[0])
        return CorruptRecordError(f"{chunk.queue} offset={offset}", chunk.base + start, reason)

    def _inflated_groups(
        self, chunk: _Chunk, bodies: pa.BinaryArray | None
    ) -> Iterator[tuple[slice, dict[int, bytes]]]:
        """Slices of the rows whose inflated bodies fit in a batch, with those bodies by row."""
        flags = chunk.layout.header[:, SYS_FLAG_AT + 3]
        if not self._wants_body or bodies is None or not (flags & FLAG_COMPRESSED).any():
            yield slice(0, len(chunk.layout)), {}
            return
        sys_flags = chunk.layout.int32(SYS_FLAG_AT)
        first, size, inflated = 0, 0, dict[int, bytes]()
        for row in np.flatnonzero(flags & FLAG_COMPRESSED).tolist():
            if row in chunk.reasons:
                continue
            try:
                body = inflate(
                    bodies[row].as_py(), int(sys_flags[row]), self._options.body_size_max
                )
            except InflateError as error:
                chunk.reasons[row] = str(error)
                self._fail_if_asked(chunk)
                continue
            if inflated and size + len(body) > _INFLATED_BATCH_SIZE_MAX:
                yield slice(first, row), inflated
                first, size, inflated = row, 0, {}
            inflated[row] = body
            size += len(body)
        yield slice(first, len(chunk.layout)), inflated

    def _build(
        self, chunk: _Chunk, rows: slice, bodies: pa.BinaryArray | None, inflated: dict[int, bytes]
    ) -> Iterator[pa.RecordBatch]:
        layout = chunk.layout
        reasons = {
            row: text for row, text in chunk.reasons.items() if rows.start <= row < rows.stop
        }
        is_whole = rows.stop - rows.start == len(layout)
        if not is_whole:
            layout = layout.rows(rows)
            bodies = None if bodies is None else bodies[rows.start : rows.stop]
        if inflated and bodies is not None:
            rows_in_batch = [row - rows.start for row in inflated]
            bodies = replace_rows(bodies, rows_in_batch, list(inflated.values()))
        rows_in_batch = [row - rows.start for row in reasons]
        emitted = None
        if reasons and self._options.corrupt is CorruptPolicy.SKIP:
            self.skipped += len(reasons)
            is_kept: Mask = np.ones(len(layout), np.bool_)
            is_kept[rows_in_batch] = False
            layout = layout.rows(is_kept)
            bodies = None if bodies is None else bodies.filter(array_of(is_kept))
        elif reasons:
            none = pa.nulls(len(layout), pa.string())
            emitted = replace_rows(none, rows_in_batch, list(reasons.values()))
        if len(layout):
            values = ColumnValues(chunk.queue, layout, bodies, emitted, self._template)
            yield self._batch(values)

    def _build_lost(self, chunk: _Chunk) -> Iterator[pa.RecordBatch]:
        """A batch of the structurally damaged records: the body is the whole record."""
        if not len(chunk.lost):
            return
        if self._options.corrupt is CorruptPolicy.SKIP:
            self.skipped += len(chunk.lost)
            return
        layout = unread_layout(chunk.data, chunk.starts[chunk.lost], chunk.sizes[chunk.lost])
        bodies = take_binary(layout.data, layout.body_start, layout.body_end)
        reasons = [
            f"{chunk.describe_lost(int(index))}; body holds the whole record"
            for index in chunk.lost
        ]
        yield self._batch(ColumnValues(chunk.queue, layout, bodies, text_array(reasons)))

    def _batch(self, values: ColumnValues) -> pa.RecordBatch:
        schema = self._options.schema
        return pa.RecordBatch.from_arrays(
            [values.column(wanted.name, wanted.type) for wanted in schema], schema=schema
        )


def _chunk_bounds(starts: Positions, ends: Positions, rows_max: int) -> Iterator[tuple[int, int]]:
    """Index ranges of at most `rows_max` records and about CHUNK_SIZE_MAX bytes."""
    first = 0
    while first < len(starts):
        stop = min(first + rows_max, len(starts))
        if ends[stop - 1] - starts[first] > CHUNK_SIZE_MAX:
            fitting = int(np.searchsorted(ends, starts[first] + CHUNK_SIZE_MAX, "right"))
            stop = max(first + 1, fitting)
        yield first, stop
        first = stop


def _out_of_order(offsets: Positions, newest: int) -> tuple[Mask, int]:
    """Which offsets break the order of a queue, and the newest of the others.

    Of two that disagree the earlier one is blamed when the later one fits behind its predecessor.
    """
    astray = np.zeros(len(offsets), np.bool_)
    if offsets[0] > newest and (offsets[1:] > offsets[:-1]).all():
        return astray, int(offsets[-1])
    kept = [(-1, newest)]
    for row, offset in enumerate(offsets.tolist()):
        if offset <= kept[-1][1]:
            if len(kept) == 1 or offset <= kept[-2][1]:
                astray[row] = True
                continue
            astray[kept.pop()[0]] = True
        kept.append((row, offset))
    return astray, kept[-1][1]
