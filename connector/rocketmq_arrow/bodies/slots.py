"""Finds the slots of a shape in all JSON bodies of a chunk that contain its texts.

One pass finds all quotes of a chunk. If a row has the texts of a shape and as many quotes as these,
its slots contain none; and the first quote of a text has the same index in every row.

    {"id": [7], "name": "[Ulm]"}     quotes 0 1 | 2 3 4 | 5     texts begin at the start of the
    {"id": [12], "name": "[Bern]"}                              row, 2 before quote 2, at quote 5

So the positions of all texts are known without a search; they are compared 8 bytes at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.bodies.shapes import QUOTE, Shape
from rocketmq_arrow.kernels.gather import Bytes, Mask, Positions, overlapping

_BACKSLASH: Final = ord("\\")
_SPACE: Final = ord(" ")
_WORD_SIZES: Final = (8, 4, 2, 1)


@dataclass(frozen=True)
class Chunk:
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
class SlotBounds:
    """The bounds of a slot in each row."""

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
class Plan:
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


def plan_of(shape: Shape) -> Plan:
    literals = shape.literals
    counts = [literal.count(QUOTE) for literal in literals]
    return Plan(
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


def rows_with_slots(
    chunk: Chunk, rows: Positions, plan: Plan
) -> tuple[Positions, list[SlotBounds]]:
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
    return rows, [SlotBounds(end, start) for end, start in zip(ends[:-1], starts[1:], strict=True)]


def _only(rows: Positions, mask: Mask) -> Positions:
    chosen: Positions = rows if mask.all() else rows[mask]
    return chosen
