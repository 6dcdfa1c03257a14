"""Locates the items of uniform property strings without searching separators.

Rows of one producer have the same names in the same order; most values have one size (ids, flags),
a few differ. What is fixed between two values of differing sizes, separators and names, is a
segment:

    KEYS 0x01 [order-17] 0x02 TAGS 0x01 [paid] 0x02 UNIQ_KEY 0x01 <32 bytes> 0x02
    segment 0            segment 1             segment 2

Sampled rows show names and sizes. Then, for all rows at once: segment 0 is at the row's start, the
last one at its end, and a value between two others ends at the next 0x02. Each segment is compared
in every row. If the text contains no separators besides those of the segments, every row is built
like the samples, and the positions are those that a search would find. Any doubt gives None: other
names, another order, doubles, empty values, a separator too many, few rows.

Nanoseconds a row of 67 bytes: 15 when all sizes are equal, otherwise 7 and about 10 for each
segment, 15 for each searched end. Searching all separators and names takes 60 to 200.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.kernels.gather import (
    Bytes,
    Mask,
    Positions,
    differing_rows,
    overlapping,
    pieces_at,
)

_SEPARATOR: Final = b"\x01"
_END: Final = b"\x02"
# Fewer rows are searched: reading the samples takes some 30 us.
_ROWS_MIN: Final = 256
_SAMPLES: Final = 8
# Rows that differ become samples, too: at most this often, and this many at a time.
_ATTEMPTS: Final = 4
_MORE_SAMPLES: Final = 8
# An end is searched 8 bytes at a time, at most this often, from the least size on.
_WINDOWS_MAX: Final = 4
_WINDOW: Final = 8
_PAUSE_MAX: Final = 64
# Bounds the samples and the cached plans. For longer rows the search costs little.
_ROW_SIZE_MAX: Final = 1_024
_ONES: Final = np.uint64(0x0101010101010101)
_ENDS: Final = np.uint64(0x0202020202020202)
_TOPS: Final = np.uint64(0x8080808080808080)


@dataclass(slots=True)
class Shape:
    """Names in their order, and the least and largest sizes of their values."""

    names: tuple[bytes, ...]
    is_closed: bool
    """Whether a 0x02 follows the last value, too."""
    sizes_min: tuple[int, ...]
    sizes_max: tuple[int, ...]

    def admit(self, other: Shape) -> bool:
        """Take in the sizes of another row; False when it has other names."""
        if other.names != self.names or other.is_closed != self.is_closed:
            return False
        self.sizes_min = tuple(map(min, self.sizes_min, other.sizes_min))
        self.sizes_max = tuple(map(max, self.sizes_max, other.sizes_max))
        return True


@dataclass(frozen=True, slots=True)
class _Segment:
    """Bytes at fixed distances; a 0 in the mask means any byte."""

    text: bytes
    mask: bytes

    def with_bytes(self, text: bytes) -> _Segment:
        return _Segment(self.text + text, self.mask + b"\xff" * len(text))

    def with_any(self, size: int) -> _Segment:
        return _Segment(self.text + bytes(size), self.mask + bytes(size))

    def __len__(self) -> int:
        return len(self.text)


@dataclass(frozen=True, slots=True)
class _Value:
    """The bounds of a value: the segments it starts and ends in, and the positions in those."""

    first: int
    start: int
    last: int
    end: int


@dataclass(frozen=True, slots=True)
class ItemBounds:
    """Every item of every row, as distances from the starts of the segments."""

    values: dict[bytes, _Value]
    segment_starts: list[Positions]

    def bounds(self, name: bytes) -> tuple[Positions, Positions] | None:
        """Where the values of a name start and end; None when no row has it."""
        value = self.values.get(name)
        if value is None:
            return None
        starts = self.segment_starts[value.first] + value.start
        return starts, self.segment_starts[value.last] + value.end


class Attempts:
    """After each failure in a row twice as many bodies, or chunks, are not tried."""

    def __init__(self) -> None:
        self._failures = 0
        self.pause = 0
        """The number of next attempts to leave out."""

    def is_paused(self) -> bool:
        """Whether to leave out the next one, which is counted."""
        if not self.pause:
            return False
        self.pause -= 1
        return True

    def note(self, *, succeeded: bool) -> None:
        self._failures = 0 if succeeded else self._failures + 1
        if not succeeded:
            self.pause = min(2**self._failures, _PAUSE_MAX) - 1


class RowTemplate:
    """Locates the items of one chunk after the other and remembers the shape of earlier rows."""

    def __init__(self) -> None:
        self._shape: Shape | None = None
        self.attempts = Attempts()
        """Rows of several producers seldom become uniform."""

    def locate(self, text: Bytes, bounds: Positions) -> ItemBounds | None:
        """The items of the rows between the bounds, or None unless all rows are uniform."""
        if len(bounds) - 1 < _ROWS_MIN:
            return None
        if self.attempts.is_paused():
            return None
        shape = self._shape
        if shape is not None:
            item_bounds, shape = _locate_by(shape, text, bounds)
        if shape is None:
            shape = _sampled_shape(text, bounds)
            if shape is not None:
                item_bounds, shape = _locate_by(shape, text, bounds)
        self._shape = shape
        self.attempts.note(succeeded=shape is not None)
        return None if shape is None else item_bounds


def _sampled_shape(text: Bytes, bounds: Positions) -> Shape | None:
    rows = np.linspace(0, len(bounds) - 2, _SAMPLES).astype(np.int64)
    shape = shape_of(text[: bounds[1]].tobytes())
    return shape if shape and _admit_rows(shape, text, bounds, rows) else None


def _admit_rows(shape: Shape, text: Bytes, bounds: Positions, rows: Positions) -> bool:
    for start, end in zip(bounds[rows].tolist(), bounds[rows + 1].tolist(), strict=True):
        seen = shape_of(text[start:end].tobytes())
        if seen is None or not shape.admit(seen):
            return False
    return True


def _locate_by(
    shape: Shape, text: Bytes, bounds: Positions
) -> tuple[ItemBounds | None, Shape | None]:
    """Also the shape, which has learned from rows that it did not fit; None when it never will."""
    separators = len(shape.names) * 2 - (not shape.is_closed)
    if np.count_nonzero(text <= _END[0]) != (len(bounds) - 1) * separators:
        return None, None
    for _ in range(_ATTEMPTS):
        plan = _plan(shape.names, shape.is_closed, shape.sizes_min, shape.sizes_max)
        try:
            return ItemBounds(plan.values, _segment_starts(text, bounds, plan)), shape
        except _OtherRowsError as error:
            if not len(error.rows) or not _admit_rows(shape, text, bounds, error.rows):
                break
    return None, None


def shape_of(row: bytes) -> Shape | None:
    """The shape of one row; None if an item has no name, no value, or another item's name."""
    if len(row) > _ROW_SIZE_MAX:
        return None
    items = row.split(_END)
    is_closed = not items[-1]
    if is_closed:
        items.pop()
    names, sizes = [], []
    for item in items:
        name, _, value = item.partition(_SEPARATOR)
        if not name or not value or _SEPARATOR in value:
            return None
        names.append(name)
        sizes.append(len(value))
    if not names or len(set(names)) < len(names):
        return None
    return Shape(tuple(names), is_closed, tuple(sizes), tuple(sizes))


@dataclass(frozen=True, slots=True)
class _Plan:
    segments: list[_Segment]
    values: dict[bytes, _Value]
    spans: list[tuple[int, int]]
    """Least and largest size of the values between the segments."""


@lru_cache(maxsize=64)
def _plan(
    names: tuple[bytes, ...],
    is_closed: bool,
    sizes_min: tuple[int, ...],
    sizes_max: tuple[int, ...],
) -> _Plan:
    segments = [_Segment(b"", b"")]
    values, spans = {}, []
    for index, name in enumerate(names):
        segments[-1] = segments[-1].with_bytes(name + _SEPARATOR)
        first, start = len(segments) - 1, len(segments[-1])
        if sizes_min[index] == sizes_max[index]:
            segments[-1] = segments[-1].with_any(sizes_min[index])
        else:
            spans.append((sizes_min[index], sizes_max[index]))
            segments.append(_Segment(b"", b""))
        values[name] = _Value(first, start, len(segments) - 1, len(segments[-1]))
        if index < len(names) - 1 or is_closed:
            segments[-1] = segments[-1].with_bytes(_END)
    return _Plan(segments, values, spans)


class _OtherRowsError(Exception):
    """Rows do not have the shape; a few to learn from, when there are any."""

    def __init__(self, rows: Positions | Sequence[int] = ()) -> None:
        super().__init__()
        self.rows = np.asarray(rows[:_MORE_SAMPLES], np.int64)


def _segment_starts(text: Bytes, bounds: Positions, plan: _Plan) -> list[Positions]:
    """Where each segment starts in each row. Raises _OtherRowsError."""
    segments, spans = plan.segments, plan.spans
    starts = bounds[:-1]
    found = [starts]
    tail = len(segments[-1])
    for index, (size_min, size_max) in enumerate(spans):
        _check_segment(text, starts, segments[index])
        value_starts = starts + len(segments[index])
        if index < len(spans) - 1:
            if size_max - size_min >= _WINDOWS_MAX * _WINDOW:
                raise _OtherRowsError
            starts = _next_ends(text, value_starts, size_min)
        else:
            starts = bounds[1:] - tail
            _refuse_rows(starts <= value_starts)
        found.append(starts)
    if not spans:
        _refuse_rows(np.diff(bounds) != tail)
    _check_segment(text, starts, segments[-1], is_all=not spans)
    return found


def _refuse_rows(is_other: Mask) -> None:
    if is_other.any():
        raise _OtherRowsError(np.flatnonzero(is_other))


def _check_segment(
    text: Bytes, starts: Positions, segment: _Segment, *, is_all: bool = False
) -> None:
    """Refuses rows without the segment at its position, and a text that is too short."""
    size = len(segment)
    if not size:
        return
    if is_all:
        rows = text
    elif int(starts.max()) + size <= len(text):
        rows = pieces_at(text, starts, size).ravel()
    else:
        raise _OtherRowsError
    others = differing_rows(rows, segment.text, segment.mask)
    if len(others):
        raise _OtherRowsError(others)


def _next_ends(text: Bytes, starts: Positions, size_min: int) -> Positions:
    """The first 0x02 at least `size_min` behind each start; refuses one that is too far away."""
    if int(starts.max()) + size_min + _WINDOWS_MAX * _WINDOW > len(text):
        text = np.concatenate([text, np.zeros(size_min + _WINDOWS_MAX * _WINDOW, np.uint8)])
    windows = overlapping(text, "<u8")
    ends = starts + size_min
    if int(ends.max()) >= len(windows):
        raise _OtherRowsError
    steps = _first_ends(windows[ends])
    ends += steps
    rows = np.flatnonzero(steps == _WINDOW)
    for _ in range(_WINDOWS_MAX - 1):
        if not len(rows):
            break
        steps = _first_ends(windows[ends[rows]])
        ends[rows] += steps
        rows = rows[steps == _WINDOW]
    if len(rows):
        raise _OtherRowsError
    return ends


def _first_ends(words: NDArray[np.uint64]) -> Positions:
    """The index of the first 0x02 among 8 bytes, 8 when there is none."""
    words ^= _ENDS
    # The lowest top bit that is set is that of the first zero byte.
    tops = (words - _ONES) & ~words & _TOPS
    tops &= ~tops + np.uint64(1)
    tops >>= np.uint64(7)
    tops -= np.uint64(1)
    tops &= _ONES
    tops *= _ONES
    tops >>= np.uint64(56)
    steps: Positions = tops.view(np.int64)
    return steps
