"""Reads JSON bodies that are built like a body seen before, all of a chunk at once, in numpy.

Bodies of one program have the same names in the same order. One body shows the texts that the
others share and the slots between them (`shapes`); the quotes of a chunk locate these in all rows
at once. If a row has the texts of a shape and as many quotes as these, its slots contain none; and
the first quote of a text has the same index in every row.

    {"id": [7], "name": "[Ulm]"}     quotes 0 1 | 2 3 4 | 5     texts begin at the start of the
    {"id": [12], "name": "[Bern]"}                              row, 2 before quote 2, at quote 5

So the positions of all texts are known without a search; they are compared 8 bytes at a time.

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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketmq_arrow.bodies.numbers import are_scalars, scalars
from rocketmq_arrow.bodies.shapes import QUOTE, Shape, Slot, shape_of
from rocketmq_arrow.decode.property_template import Attempts
from rocketmq_arrow.kernels.gather import (
    Bytes,
    Mask,
    Positions,
    overlapping,
    take_binary,
    values_of,
)
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
_BACKSLASH: Final = ord("\\")
_WORD_SIZES: Final = (8, 4, 2, 1)
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
        self._plans: list[_Plan] = []
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
        chunk = _Chunk(data, starts, ends)
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


def _sampled_plan(chunk: _Chunk, rows: Positions, schema: pa.Schema) -> _Plan | None:
    """The plan for the shape that several sampled rows share."""
    samples = rows[np.linspace(0, len(rows) - 1, _SAMPLES).astype(np.int64)]
    shapes: Counter[Shape] = Counter()
    for row in samples.tolist():
        shape = shape_of(chunk.data[chunk.starts[row] : chunk.ends[row]].tobytes(), schema)
        if shape is not None:
            shapes[shape] += 1
    likely = shapes.most_common(1)
    return _plan_of(likely[0][0]) if likely and likely[0][1] >= _UNIFORM_SAMPLES else None


def _read_uniform(
    chunk: _Chunk, candidates: Positions, plan: _Plan, schema: pa.Schema
) -> KnownRows:
    """Reads the rows that fit a shape."""
    shape = plan.shape
    rows, slots = _rows_with_slots(chunk, candidates, plan)
    if not len(rows):
        return _NO_ROWS
    is_right = np.ones(len(rows), np.bool_)
    wanted: dict[tuple[str, ...], list[_SlotBounds]] = {}
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
    wanted: dict[tuple[str, ...], list[_SlotBounds]]
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

    def _lists(self, slot: _SlotBounds, kind: pa.ListType) -> pa.ListArray:
        items = _items_of(self.data, slot, self.shape.separator)
        values, is_right = scalars(items.texts, kind.value_type)
        self.is_right[items.rows_of(~is_right)] = False
        self.is_right[items.wrong_rows] = False
        return _list_array(items.offsets, values, kind)

    def _text_lists(self, slots: list[_SlotBounds], kind: pa.ListType) -> pa.ListArray:
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


def _are_right(data: Bytes, kind: Slot, slot: _SlotBounds, separator: bytes) -> Mask:
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


def _items_of(data: Bytes, slot: _SlotBounds, separator: bytes) -> _Items:
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


# --- slots of all rows -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Chunk:
    """Bodies in UTF-8, and where their quotes are."""

    data: Bytes
    starts: Positions
    ends: Positions

    @cached_property
    def quotes(self) -> Positions:
        return np.flatnonzero(self.data == ord(QUOTE))

    @cached_property
    def first_quotes(self) -> Positions:
        """The index of each row's first quote, followed by the number of quotes."""
        quotes, count = self.quotes, len(self.starts)
        each = len(quotes) // count
        # Usually all rows have the same number.
        if each and len(quotes) == each * count:
            is_first = (quotes[::each] >= self.starts).all()
            if is_first and (quotes[each - 1 :: each] < self.ends).all():
                return np.arange(0, len(quotes) + 1, each)
        return np.append(np.searchsorted(quotes, self.starts), len(quotes))

    @cached_property
    def quote_counts(self) -> Positions:
        return np.diff(self.first_quotes)

    @cached_property
    def odd_counts(self) -> Positions | None:
        """The number of control characters and backslashes in each row; None if no row has any."""
        data = self.data
        is_odd = data == _BACKSLASH
        if data.min() < _SPACE:
            is_odd |= data < _SPACE
        elif not is_odd.any():
            return None
        odd = np.flatnonzero(is_odd)
        counts: Positions = np.searchsorted(odd, self.ends) - np.searchsorted(odd, self.starts)
        return counts


@dataclass(frozen=True, slots=True)
class _SlotBounds:
    starts: Positions
    ends: Positions


@dataclass(frozen=True, slots=True)
class _Words:
    """Pieces of one size of the texts, each a row of one column."""

    dtype: str
    literals: Positions
    positions: Positions
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A shape in the form in which rows are compared with it."""

    shape: Shape
    quotes: int
    """In all texts."""
    odd: int
    """Control characters in all texts."""
    sizes: Positions
    first_quotes: Positions
    """For the texts but the first and the last: the index of their first quote in the row."""
    before_quotes: Positions
    """The number of bytes before that quote."""
    words: list[_Words]


def _plan_of(shape: Shape) -> _Plan:
    literals = shape.literals
    counts = [literal.count(QUOTE) for literal in literals]
    return _Plan(
        shape,
        sum(counts),
        sum(byte < _SPACE for literal in literals for byte in literal),
        _column([len(literal) for literal in literals]),
        _column(list(accumulate(counts))[: len(literals) - 2]),
        _column([literal.index(QUOTE) for literal in literals[1:-1]]),
        _words_of(literals),
    )


def _words_of(literals: Sequence[bytes]) -> list[_Words]:
    """All bytes of the texts in pieces as large as fit; the last of a text overlaps another."""
    pieces: dict[int, list[tuple[int, int, bytes]]] = {}
    for index, literal in enumerate(literals):
        size = next(size for size in _WORD_SIZES if size <= len(literal))
        for at in range(0, len(literal), size):
            at_last = min(at, len(literal) - size)
            word = literal[at_last : at_last + size]
            pieces.setdefault(size, []).append((index, at_last, word))
    words = []
    for size, found in pieces.items():
        indices, positions, values = zip(*found, strict=True)
        dtype = f"<u{size}"
        array = np.frombuffer(b"".join(values), dtype).reshape(-1, 1)
        words.append(_Words(dtype, np.array(indices), _column(positions), array))
    return words


def _column(values: Sequence[int]) -> Positions:
    return np.array(values, np.int64).reshape(-1, 1)


def _rows_with_slots(
    chunk: _Chunk, rows: Positions, plan: _Plan
) -> tuple[Positions, list[_SlotBounds]]:
    """The rows that contain the texts of a shape, and the slots between these."""
    rows = _only(rows, chunk.quote_counts[rows] == plan.quotes)
    if chunk.odd_counts is not None:
        rows = _only(rows, chunk.odd_counts[rows] == plan.odd)
    if not len(rows):
        return rows, []
    starts = np.empty((len(plan.sizes), len(rows)), np.int64)
    starts[0] = chunk.starts[rows]
    starts[1:-1] = chunk.quotes[chunk.first_quotes[rows] + plan.first_quotes]
    starts[1:-1] -= plan.before_quotes
    starts[-1] = chunk.ends[rows] - plan.sizes[-1]
    ends = starts + plan.sizes
    # In order, and the last one at the end: so all of them are within the row.
    is_within = (ends[:-1] <= starts[1:]).all(axis=0)
    if not is_within.all():
        rows, starts = rows[is_within], starts[:, is_within]
    is_uniform = np.ones(len(rows), np.bool_)
    for words in plan.words:
        positions = starts[words.literals] + words.positions
        is_uniform &= (overlapping(chunk.data, words.dtype)[positions] == words.values).all(axis=0)
    if not is_uniform.all():
        rows, starts = rows[is_uniform], starts[:, is_uniform]
    ends = starts + plan.sizes
    return rows, [_SlotBounds(end, start) for end, start in zip(ends[:-1], starts[1:], strict=True)]


def _only(rows: Positions, mask: Mask) -> Positions:
    chosen: Positions = rows if mask.all() else rows[mask]
    return chosen
