"""Finds the slots of a shape in all JSON bodies of a chunk that have its texts in their places.

The quotes of a chunk are found in one pass. A row with as many of them as the texts of a shape have
holds none in its slots, if it has those texts; and the first quote of a text has one index in all
rows.

    {"id": [7], "name": "[Ulm]"}     quotes 0 1 | 2 3 4 | 5     texts begin at the start of the
    {"id": [12], "name": "[Bern]"}                              row, 2 before quote 2, at quote 5

So the places of all texts are known without a search, and compared in pieces of up to 8 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.bodies.json.shapes import QUOTE, Shape
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
class Place:
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
class Plan:
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


def placed_rows(chunk: Chunk, rows: Positions, plan: Plan) -> tuple[Positions, list[Place]]:
    """The rows that have the texts of a shape in their places, and the slots between these."""
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
        places = starts[words.literals] + words.places
        is_uniform &= (overlapping(chunk.data, words.dtype)[places] == words.values).all(axis=0)
    if not is_uniform.all():
        rows, starts = rows[is_uniform], starts[:, is_uniform]
    ends = starts + plan.sizes
    return rows, [Place(end, start) for end, start in zip(ends[:-1], starts[1:], strict=True)]


def _only(rows: Positions, mask: Mask) -> Positions:
    chosen: Positions = rows if mask.all() else rows[mask]
    return chosen
