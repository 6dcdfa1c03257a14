"""Reads many bodies with a parser that accepts all of them or none, and finds the bad ones.

All values come from that parser, and so does every decision in doubt. A call costs 50 to 100
microseconds, so the bad bodies of a chunk are not searched with it: a regular expression over all
bodies leaves the suspects, and a parser of single bodies in Python validates those. The rest is
read in one call. If that call fails, too, the other bodies are validated as well; if that does not
help, the rows are read in smaller and smaller parts.

Microseconds a body of 100 bytes (JSON, not uniform, five fields, chunks of 10,000): 0.6 without
bad ones, 1.1 with 0.1 % or 1 % of them, 1.5 with 10 %, 4.2 when all are bad. Smaller and smaller
parts alone took 8.5 with 0.1 %, 44 with 1 %, and 150 and 260.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from rocketmq_arrow.kernels.gather import Mask, Positions
from rocketmq_arrow.kernels.numpy_arrays import array_of

# Refused rows are read again in this many parts.
_PARTS: Final = 16
# Compiling the regular expression, once per call, takes as long as validating this many bodies.
_SUSPECTED_MIN: Final = 200


class Validity(IntEnum):
    """The result for one body: that of its worst field.

    Only BAD is final: a body that seems GOOD is parsed with the others.
    """

    GOOD = 0
    UNSURE = 1
    BAD = 2


class Bodies(Protocol):
    """Bodies of one format; rows are ascending."""

    def columns(self, rows: Positions) -> list[pa.Array] | str:
        """The columns of some rows, or why one of them is bad."""

    def seem_valid(self, rows: Positions) -> Mask:
        """Which rows a quick check accepts; it hardly ever accepts a bad one."""

    def validity(self, row: int) -> Validity:
        """Validates one body."""


@dataclass(frozen=True, slots=True)
class KnownRows:
    """Rows that were read without the parser, ascending, and their columns."""

    rows: Positions
    columns: list[pa.Array]


@dataclass(frozen=True, slots=True)
class ReadBodies:
    """A column for each field, null in the rows of bad bodies, which ascend."""

    columns: list[pa.Array]
    bad: list[int]
    why: Callable[[int], str]
    """Why the body of a bad row is bad."""


def read_bodies(
    schema: pa.Schema,
    count: int,
    refused: dict[int, str],
    bodies: Bodies,
    *,
    known: Sequence[KnownRows] = (),
    screen_first: bool = False,
) -> ReadBodies:
    """Reads all rows in their order, except those that are refused or known already.

    `screen_first` checks the rows before the first call: it pays where bad bodies are likely.
    """
    is_good = np.ones(count, np.bool_)
    is_good[list(refused)] = False
    for part in known:
        is_good[part.rows] = False
    if screen_first:
        is_good[_bad_ones(bodies, _unscreened(bodies, np.flatnonzero(is_good)))] = False
    columns = _columns_of_good(schema, bodies, is_good)
    parts = [KnownRows(np.flatnonzero(is_good), columns), *known]
    columns, bad = _joined_parts(schema, count, [part for part in parts if len(part.rows)])

    def why(row: int) -> str:
        reason = refused.get(row) or bodies.columns(np.array([row]))
        assert isinstance(reason, str), f"row {row} was marked as bad"
        return reason

    return ReadBodies(columns, bad.tolist(), why)


def joined_array(parts: list[pa.Array], arrow_type: pa.DataType) -> pa.Array:
    """One array of several."""
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else pa.nulls(0, arrow_type)


def _joined_parts(
    schema: pa.Schema, count: int, parts: list[KnownRows]
) -> tuple[list[pa.Array], Positions]:
    """The columns of all rows in their order, and the rows that are in no part."""
    columns = [
        joined_array([part.columns[index] for part in parts], field.type)
        for index, field in enumerate(schema)
    ]
    if len(parts) == 1 and len(parts[0].rows) == count:
        return columns, np.empty(0, np.int64)
    positions = np.full(count, -1, np.int64)
    end = 0
    for part in parts:
        positions[part.rows] = np.arange(end, end + len(part.rows))
        end += len(part.rows)
    missing = positions < 0
    indices = array_of(positions, missing if missing.any() else None)
    return [column.take(indices) for column in columns], np.flatnonzero(missing)


def _columns_of_good(schema: pa.Schema, bodies: Bodies, is_good: Mask) -> list[pa.Array]:
    """The columns of the good rows; clears the mask for the bad ones."""
    for suspects_of in (_unscreened, _all):
        rows = np.flatnonzero(is_good)
        if not len(rows):
            return [pa.nulls(0, field.type) for field in schema]
        found = bodies.columns(rows)
        if not isinstance(found, str):
            return found
        is_good[_bad_ones(bodies, suspects_of(bodies, rows))] = False
    columns: list[list[pa.Array]] = [[] for _ in schema]
    for part, found in _parts(bodies, np.flatnonzero(is_good)):
        if isinstance(found, str):
            is_good[part] = False
            continue
        for parts, column in zip(columns, found, strict=True):
            parts.append(column)
    return [joined_array(parts, field.type) for parts, field in zip(columns, schema, strict=True)]


def _unscreened(bodies: Bodies, rows: Positions) -> Positions:
    if len(rows) < _SUSPECTED_MIN:
        return rows
    suspects: Positions = rows[~bodies.seem_valid(rows)]
    return suspects


def _all(_bodies: Bodies, rows: Positions) -> Positions:
    return rows


def _bad_ones(bodies: Bodies, rows: Positions) -> list[int]:
    """The rows that are certainly bad."""
    bad, unsure = [], []
    for row in rows.tolist():
        validity = bodies.validity(row)
        if validity is Validity.BAD:
            bad.append(row)
        elif validity is Validity.UNSURE:
            unsure.append(row)
    for part, found in _parts(bodies, np.array(unsure, np.int64)):
        if isinstance(found, str):
            bad.extend(part.tolist())
    return bad


def _parts(bodies: Bodies, rows: Positions) -> Iterator[tuple[Positions, list[pa.Array] | str]]:
    """Reads the rows in parts; yields columns, or for a single row why it is bad."""
    if not len(rows):
        return
    found = bodies.columns(rows)
    if not isinstance(found, str) or len(rows) == 1:
        yield rows, found
        return
    step = -(-len(rows) // _PARTS)
    for at in range(0, len(rows), step):
        yield from _parts(bodies, rows[at : at + step])
