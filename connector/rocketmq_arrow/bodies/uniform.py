"""Reads JSON bodies that are built like a body seen before, all of a chunk at once, in numpy.

Bodies of one program have the same names in the same order. One body shows the texts that the
others share and the slots between them (`shapes`); the quotes of a chunk locate these in all rows
at once (`slots`).

A row is read here if it contains each text at its position, no string contains a quote, a control
character or a backslash, and every other value is a number, true, false or null that its column
takes. Such a row is certainly one JSON object. Arrow's parser reads all other rows, and all bodies
with lists of lists or of objects, or with lists of strings that vary in length.

Nanoseconds a body of 100 bytes with six fields, five of them wanted, in chunks of 16,000: 225,
where Arrow's parser takes 550. The quotes take 37, the positions of texts 54, the columns 4
(strings) to 38 (lists). With 0.1 %, 1 % and 10 % bad bodies 290, 325 and 720 instead of 815, 845
and 1,150; a string that is null at times makes a second shape: 390 instead of 580. A chunk takes
0.3 ms besides, so that 512 rows take 760 a body instead of 880, and fewer are left to the parser.
Bodies without a common shape cost 0.2 ms for each chunk that is sampled, which are fewer and fewer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from rocketmq_arrow.bodies.numbers import are_scalars, scalars
from rocketmq_arrow.bodies.shapes import Shape, Slot, shape_of
from rocketmq_arrow.bodies.slots import Chunk, Plan, SlotBounds, plan_of, rows_with_slots
from rocketmq_arrow.decode.property_template import Attempts
from rocketmq_arrow.kernels.gather import Bytes, Mask, Positions, take_binary, values_of
from rocketmq_arrow.kernels.numpy_arrays import array_of

# Fewer rows are as quick with the parser.
_ROWS_MIN: Final = 512
# A shape is tried if this many of the sampled rows have it.
_SAMPLES: Final = 8
_UNIFORM_SAMPLES: Final = 3
_SHAPES_MAX: Final = 4
# A shape that fits a smaller share of a chunk is dropped; for fewer rows no further one is learned.
_SHARE_MIN: Final = 1 / 8
_COMMA: Final = ord(",")
_SPACE: Final = ord(" ")


@dataclass(frozen=True, slots=True)
class KnownRows:
    """Rows that were read without the parser, ascending, and their columns."""

    rows: Positions
    columns: list[pa.Array]


_NO_ROWS: Final = KnownRows(np.empty(0, np.int64), [])


class UniformBodies:
    """Reads one chunk after the other and remembers the shapes of earlier bodies."""

    def __init__(self, schema: pa.Schema, *, rows_min: int = _ROWS_MIN) -> None:
        self._schema = schema
        self._rows_min = rows_min
        self._plans: list[Plan] = []
        self.attempts = Attempts()
        """Attempts to learn a shape."""

    def read(
        self, data: Bytes, starts: Positions, ends: Positions, refused: dict[int, str]
    ) -> list[KnownRows]:
        """Reads the uniform rows. All rows but the refused ones must be UTF-8."""
        is_left = np.ones(len(starts), np.bool_)
        is_left[list(refused)] = False
        left = np.flatnonzero(is_left)
        if len(left) < self._rows_min:
            return []
        chunk = Chunk(data, starts, ends)
        found: list[KnownRows] = []
        share_min = len(left) * _SHARE_MIN
        for plan in tuple(self._plans):
            part = _read_uniform(chunk, left, plan, self._schema)
            if len(part.rows) < share_min:
                self._plans.remove(plan)
            found.append(part)
            is_left[part.rows] = False
            left = np.flatnonzero(is_left)
        while (
            len(left) >= max(share_min, self._rows_min)
            and len(self._plans) < _SHAPES_MAX
            and not self.attempts.is_paused()
        ):
            learned = _sampled_plan(chunk, left, self._schema)
            part = _read_uniform(chunk, left, learned, self._schema) if learned else _NO_ROWS
            found.append(part)
            self.attempts.note(succeeded=learned is not None and len(part.rows) >= share_min)
            if learned is None or len(part.rows) < share_min:
                break
            self._plans.append(learned)
            is_left[part.rows] = False
            left = np.flatnonzero(is_left)
        return found


def _sampled_plan(chunk: Chunk, rows: Positions, schema: pa.Schema) -> Plan | None:
    """The plan for the shape that several sampled rows share."""
    samples = rows[np.linspace(0, len(rows) - 1, _SAMPLES).astype(np.int64)]
    shapes: Counter[Shape] = Counter()
    for row in samples.tolist():
        shape = shape_of(chunk.data[chunk.starts[row] : chunk.ends[row]].tobytes(), schema)
        if shape is not None:
            shapes[shape] += 1
    likely = shapes.most_common(1)
    return plan_of(likely[0][0]) if likely and likely[0][1] >= _UNIFORM_SAMPLES else None


def _read_uniform(chunk: Chunk, candidates: Positions, plan: Plan, schema: pa.Schema) -> KnownRows:
    """Reads the rows that fit a shape."""
    shape = plan.shape
    rows, slots = rows_with_slots(chunk, candidates, plan)
    if not len(rows):
        return _NO_ROWS
    is_right = np.ones(len(rows), np.bool_)
    wanted: dict[tuple[str, ...], list[SlotBounds]] = {}
    for kind, path, slot in zip(shape.slots, shape.paths, slots, strict=True):
        if path:
            wanted.setdefault(path, []).append(slot)
        elif kind is not Slot.TEXT:
            is_right &= _are_right(chunk.data, kind, slot, shape.separator)
    columns = _Columns(chunk.data, shape, wanted, is_right)
    arrays = [columns.column((field.name,), field.type) for field in schema]
    if not is_right.all():
        rows = rows[is_right]
        arrays = [array.filter(array_of(is_right)) for array in arrays]
    return KnownRows(rows, arrays)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of the rows that contain the texts of a shape."""

    data: Bytes
    shape: Shape
    wanted: dict[tuple[str, ...], list[SlotBounds]]
    is_right: Mask
    """Cleared for rows with a value that its column does not take."""

    def column(self, path: tuple[str, ...], kind: pa.DataType) -> pa.Array:
        slots, count = self.wanted.get(path, []), len(self.is_right)
        if path in self.shape.objects:
            if pa.types.is_list(kind):
                return self._text_lists(slots, kind)
            inner = [self.column((*path, field.name), field.type) for field in kind]
            if not inner:
                return pa.Array.from_buffers(kind, count, [None])
            return pa.StructArray.from_arrays(inner, fields=list(kind))
        if not slots:
            return pa.nulls(count, kind)
        (slot,) = slots
        if pa.types.is_list(kind):
            return self._lists(slot, kind)
        texts = take_binary(self.data, slot.starts, slot.ends)
        if pa.types.is_string(kind):
            return texts.view(kind)
        values, is_right = scalars(texts, kind)
        self.is_right[~is_right] = False
        return values

    def _lists(self, slot: SlotBounds, kind: pa.ListType) -> pa.ListArray:
        items = _items_of(self.data, slot, self.shape.separator)
        values, is_right = scalars(items.texts, kind.value_type)
        self.is_right[items.rows_of(~is_right)] = False
        self.is_right[items.wrong_rows] = False
        return _list_array(items.offsets, values, kind)

    def _text_lists(self, slots: list[SlotBounds], kind: pa.ListType) -> pa.ListArray:
        """Lists with the same number of strings in every row."""
        count, each = len(self.is_right), len(slots)
        offsets = np.arange(0, count * each + 1, each) if each else np.zeros(count + 1, np.int64)
        values = pa.nulls(0, kind.value_type)
        if each:
            starts = np.stack([slot.starts for slot in slots], axis=1).ravel()
            ends = np.stack([slot.ends for slot in slots], axis=1).ravel()
            values = take_binary(self.data, starts, ends).view(kind.value_type)
        return _list_array(offsets, values, kind)


def _list_array(offsets: Positions, values: pa.Array, kind: pa.ListType) -> pa.ListArray:
    return pa.ListArray.from_arrays(array_of(offsets.astype(np.int32)), values, type=kind)


def _are_right(data: Bytes, kind: Slot, slot: SlotBounds, separator: bytes) -> Mask:
    """Whether the values of unwanted fields are JSON."""
    if kind is Slot.VALUE:
        return are_scalars(take_binary(data, slot.starts, slot.ends))
    items = _items_of(data, slot, separator)
    is_right = np.ones(len(slot.starts), np.bool_)
    is_right[items.rows_of(~are_scalars(items.texts))] = False
    is_right[items.wrong_rows] = False
    return is_right


@dataclass(frozen=True, slots=True)
class _Items:
    texts: pa.BinaryArray
    offsets: Positions
    """The first item of each row, and the end."""
    wrong_rows: Positions
    """Rows with other separators."""

    def rows_of(self, mask: Mask) -> Positions:
        if not mask.any():
            return np.empty(0, np.int64)
        rows: Positions = np.searchsorted(self.offsets, np.flatnonzero(mask), "right") - 1
        return rows


def _items_of(data: Bytes, slot: SlotBounds, separator: bytes) -> _Items:
    # With the brackets behind them, so that every item has an end.
    text, bounds = values_of(take_binary(data, slot.starts, slot.ends + 1))
    is_end = text == _COMMA
    is_end[bounds[1:] - 1] = True
    ends = np.flatnonzero(is_end)
    is_last = text[ends] != _COMMA
    lasts = np.flatnonzero(is_last)
    starts = np.empty(len(ends), np.int64)
    starts[0] = 0
    starts[1:] = ends[:-1] + np.where(is_last[:-1], 1, len(separator))
    offsets = np.append(0, lasts + 1)
    wrong_rows = np.empty(0, np.int64)
    if len(separator) > 1 and len(lasts) < len(ends):
        commas = np.flatnonzero(~is_last)
        # At least a bracket follows a comma, and a separator has at most one space.
        is_other = text[ends[commas] + 1] != _SPACE
        wrong_rows = np.searchsorted(offsets, commas[is_other], "right") - 1
        starts = np.minimum(starts, ends)
    is_empty = bounds[1:] - bounds[:-1] == 1
    if is_empty.any():
        kept = np.ones(len(ends), np.bool_)
        kept[lasts[is_empty]] = False
        starts, ends = starts[kept], ends[kept]
        offsets = offsets - np.append(0, np.cumsum(is_empty))
    return _Items(take_binary(text, starts, ends), offsets, wrong_rows)
