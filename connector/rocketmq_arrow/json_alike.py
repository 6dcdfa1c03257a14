"""Reads JSON bodies that are built like a body seen before, all of a chunk at once, in numpy.

Bodies of one program have the same names in the same order. One body shows the texts that others
will have too, and the slots between them (`json_shapes`). The quotes of a chunk, found in one pass,
tell where the texts must stand in every row: a row with as many quotes as the texts have holds none
in its slots, and the first quote of a text has one index in all rows.

    {"id": [7], "name": "[Ulm]"}     quotes 0 1 | 2 3 4 | 5     texts begin at the start of the
    {"id": [12], "name": "[Bern]"}                              row, 2 before quote 2, at quote 5

A row is read here when each text stands in its place, no slot holds a control character or a
backslash, and what is no string is a number, true, false or null that its column takes. Such a row
is one JSON object, with no doubt left. Nothing is said of any other row: Arrow's parser has it.
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

from rocketmq_arrow.gather import Bytes, Mask, Positions, overlapping, take_binary, values_of
from rocketmq_arrow.json_numbers import are_scalars, scalars
from rocketmq_arrow.json_shapes import QUOTE, Shape, Slot, shape_of
from rocketmq_arrow.numpy_arrays import array_of
from rocketmq_arrow.read_bodies import KnownRows

# Fewer rows are quicker with the parser: a shape costs some 0.3 ms, however many fit it.
_ROWS_MIN: Final = 512
# Of so many rows so many must be built alike, to be worth a look at all of them.
_SAMPLES: Final = 8
_SAMPLES_ALIKE: Final = 3
_SHAPES_MAX: Final = 4
# Shapes that fit a smaller share of a chunk are forgotten, and for a smaller one none is learned.
_SHARE_MIN: Final = 1 / 8
_PAUSE_MAX: Final = 64
_COMMA: Final = ord(",")
_BACKSLASH: Final = ord("\\")
_SPACE: Final = ord(" ")
_WORD_SIZES: Final = (8, 4, 2, 1)


@dataclass(frozen=True)
class _Chunk:
    """Bodies in UTF-8, and where their quotes are."""

    data: Bytes
    starts: Positions
    ends: Positions

    @cached_property
    def quotes(self) -> Positions:
        """The places of all quotes."""
        return np.flatnonzero(self.data == ord(QUOTE))

    @cached_property
    def first_quotes(self) -> Positions:
        """The index of each row's first quote, and behind them that of the end."""
        quotes, count = self.quotes, len(self.starts)
        each = len(quotes) // count
        # Mostly all rows have the same number.
        if each and len(quotes) == each * count:
            is_first = (quotes[::each] >= self.starts).all()
            if is_first and (quotes[each - 1 :: each] < self.ends).all():
                return np.arange(0, len(quotes) + 1, each)
        return np.append(np.searchsorted(quotes, self.starts), len(quotes))

    @cached_property
    def quote_counts(self) -> Positions:
        """How many each row has."""
        return np.diff(self.first_quotes)

    @cached_property
    def odd_counts(self) -> Positions | None:
        """How many control characters and backslashes each row has; None: no row has any."""
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
class _Place:
    """The bounds of a slot in each row."""

    starts: Positions
    ends: Positions


@dataclass(frozen=True, slots=True)
class _Words:
    """Pieces of one size of the texts, each a row of one column."""

    dtype: str
    literals: Positions
    places: Positions
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How rows are compared with a shape."""

    shape: Shape
    quotes: int
    """In all texts."""
    odd: int
    """Control characters in all texts."""
    sizes: Positions
    first_quotes: Positions
    """For the texts but the first and the last: the index of their first quote in the row."""
    before_quotes: Positions
    """And what stands before it."""
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
            place = min(at, len(literal) - size)
            word = literal[place : place + size]
            pieces.setdefault(size, []).append((index, place, word))
    words = []
    for size, found in pieces.items():
        indices, places, values = zip(*found, strict=True)
        dtype = f"<u{size}"
        array = np.frombuffer(b"".join(values), dtype).reshape(-1, 1)
        words.append(_Words(dtype, np.array(indices), _column(places), array))
    return words


def _column(values: Sequence[int]) -> Positions:
    return np.array(values, np.int64).reshape(-1, 1)


class AlikeBodies:
    """Reads one chunk after the other; remembers how the bodies were built so far."""

    def __init__(self, schema: pa.Schema, *, rows_min: int = _ROWS_MIN) -> None:
        self._schema = schema
        self._rows_min = rows_min
        self._plans: list[_Plan] = []
        self._next_pause = 1
        self.pause = 0
        """From so many of the next chunks nothing is learned."""

    def read(
        self, data: Bytes, starts: Positions, ends: Positions, refused: dict[int, str]
    ) -> list[KnownRows]:
        """The rows of bodies that are built like others; all are UTF-8 but the refused ones."""
        is_left = np.ones(len(starts), np.bool_)
        is_left[list(refused)] = False
        left = np.flatnonzero(is_left)
        if len(left) < self._rows_min:
            return []
        chunk = _Chunk(data, starts, ends)
        found: list[KnownRows] = []
        share_min = len(left) * _SHARE_MIN
        for plan in tuple(self._plans):
            part = _read_alike(chunk, left, plan, self._schema)
            if len(part.rows) < share_min:
                self._plans.remove(plan)
            left = _add_part(found, part, left)
        while len(left) >= max(share_min, self._rows_min) and self._may_learn():
            shape = _sampled_shape(chunk, left, self._schema)
            if shape is not None:
                plan = _plan_of(shape)
                part = _read_alike(chunk, left, plan, self._schema)
                left = _add_part(found, part, left)
            if shape is None or len(part.rows) < share_min:
                self._next_pause = min(2 * self._next_pause, _PAUSE_MAX)
                self.pause = self._next_pause
                break
            self._next_pause = 1
            self._plans.append(plan)
        self.pause = max(0, self.pause - 1)
        return found

    def _may_learn(self) -> bool:
        return not self.pause and len(self._plans) < _SHAPES_MAX


def _add_part(found: list[KnownRows], part: KnownRows, left: Positions) -> Positions:
    """The rows that are still left behind this part."""
    if not len(part.rows):
        return left
    found.append(part)
    if len(part.rows) == len(left):
        return left[:0]
    rest: Positions = np.setdiff1d(left, part.rows, assume_unique=True)
    return rest


def _sampled_shape(chunk: _Chunk, rows: Positions, schema: pa.Schema) -> Shape | None:
    """The shape of several of a few rows."""
    samples = rows[np.linspace(0, len(rows) - 1, _SAMPLES).astype(np.int64)]
    shapes: Counter[Shape] = Counter()
    for row in samples.tolist():
        shape = shape_of(chunk.data[chunk.starts[row] : chunk.ends[row]].tobytes(), schema)
        if shape is not None:
            shapes[shape] += 1
    likely = shapes.most_common(1)
    return likely[0][0] if likely and likely[0][1] >= _SAMPLES_ALIKE else None


def _read_alike(chunk: _Chunk, candidates: Positions, plan: _Plan, schema: pa.Schema) -> KnownRows:
    """Those of the rows that fit a shape."""
    shape = plan.shape
    rows, places = _placed(chunk, candidates, plan)
    if not len(rows):
        return KnownRows(rows, [])
    is_right = np.ones(len(rows), np.bool_)
    wanted: dict[tuple[str, ...], list[_Place]] = {}
    for slot, path, place in zip(shape.slots, shape.paths, places, strict=True):
        if path:
            wanted.setdefault(path, []).append(place)
        elif slot is not Slot.TEXT:
            is_right &= _are_right(chunk.data, place, slot, shape.separator)
    columns = _Columns(chunk.data, shape, wanted, is_right)
    arrays = [columns.column((field.name,), field.type) for field in schema]
    if not is_right.all():
        rows = rows[is_right]
        arrays = [array.filter(array_of(is_right)) for array in arrays]
    return KnownRows(rows, arrays)


def _placed(chunk: _Chunk, rows: Positions, plan: _Plan) -> tuple[Positions, list[_Place]]:
    """The rows that have the texts of a shape in their places, and the slots between these."""
    rows = _only(rows, chunk.quote_counts[rows] == plan.quotes)
    if chunk.odd_counts is not None:
        rows = _only(rows, chunk.odd_counts[rows] == plan.odd)
    elif plan.odd:
        rows = rows[:0]
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
    is_alike = np.ones(len(rows), np.bool_)
    for words in plan.words:
        places = starts[words.literals] + words.places
        is_alike &= (overlapping(chunk.data, words.dtype)[places] == words.values).all(axis=0)
    if not is_alike.all():
        rows, starts = rows[is_alike], starts[:, is_alike]
    ends = starts + plan.sizes
    return rows, [_Place(end, start) for end, start in zip(ends[:-1], starts[1:], strict=True)]


def _only(rows: Positions, mask: Mask) -> Positions:
    chosen: Positions = rows if mask.all() else rows[mask]
    return chosen


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of the rows that have their texts in place."""

    data: Bytes
    shape: Shape
    wanted: dict[tuple[str, ...], list[_Place]]
    is_right: Mask
    """Loses the rows whose slots hold something else than their columns take."""

    def column(self, path: tuple[str, ...], kind: pa.DataType) -> pa.Array:
        """The values of one field."""
        places, count = self.wanted.get(path, []), len(self.is_right)
        if path in self.shape.objects:
            if pa.types.is_list(kind):
                return self._text_lists(places, kind)
            inner = [self.column((*path, field.name), field.type) for field in kind]
            if not inner:
                return pa.Array.from_buffers(kind, count, [None])
            return pa.StructArray.from_arrays(inner, fields=list(kind))
        if not places:
            return pa.nulls(count, kind)
        (place,) = places
        if pa.types.is_list(kind):
            return self._lists(place, kind)
        texts = take_binary(self.data, place.starts, place.ends)
        if pa.types.is_string(kind):
            return texts.view(kind)
        values, is_right = scalars(texts, kind)
        self.is_right[~is_right] = False
        return values

    def _lists(self, place: _Place, kind: pa.ListType) -> pa.ListArray:
        items = _items_of(self.data, place, self.shape.separator)
        values, is_right = scalars(items.texts, kind.value_type)
        self.is_right[items.rows_of(~is_right)] = False
        self.is_right[items.wrong_rows] = False
        return _list_array(items.offsets, values, kind)

    def _text_lists(self, places: list[_Place], kind: pa.ListType) -> pa.ListArray:
        """Lists of as many strings in every row."""
        count, each = len(self.is_right), len(places)
        offsets = np.arange(0, count * each + 1, each) if each else np.zeros(count + 1, np.int64)
        values = pa.nulls(0, kind.value_type)
        if each:
            starts = np.stack([place.starts for place in places], axis=1).ravel()
            ends = np.stack([place.ends for place in places], axis=1).ravel()
            values = take_binary(self.data, starts, ends).view(kind.value_type)
        return _list_array(offsets, values, kind)


def _list_array(offsets: Positions, values: pa.Array, kind: pa.ListType) -> pa.ListArray:
    return pa.ListArray.from_arrays(array_of(offsets.astype(np.int32)), values, type=kind)


def _are_right(data: Bytes, place: _Place, slot: Slot, separator: bytes) -> Mask:
    """Whether values that nobody wants are JSON."""
    if slot is Slot.VALUE:
        return are_scalars(take_binary(data, place.starts, place.ends))
    items = _items_of(data, place, separator)
    is_right = np.ones(len(place.starts), np.bool_)
    is_right[items.rows_of(~are_scalars(items.texts))] = False
    is_right[items.wrong_rows] = False
    return is_right


@dataclass(frozen=True, slots=True)
class _Items:
    """What stands between the commas of lists."""

    texts: pa.BinaryArray
    offsets: Positions
    """The first item of each row, and the end."""
    wrong_rows: Positions
    """Rows with other separators."""

    def rows_of(self, mask: Mask) -> Positions:
        """The rows of some items."""
        if not mask.any():
            return np.empty(0, np.int64)
        rows: Positions = np.searchsorted(self.offsets, np.flatnonzero(mask), "right") - 1
        return rows


def _items_of(data: Bytes, place: _Place, separator: bytes) -> _Items:
    # With the brackets behind them, so that every item has an end.
    text, bounds = values_of(take_binary(data, place.starts, place.ends + 1))
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
        # Behind a comma there is a bracket at least, and a separator has no more than a space.
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
