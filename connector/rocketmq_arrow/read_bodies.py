"""Turns a reader of many bodies that fails as a whole into columns, and the bodies to blame.

What is refused is read again in ever smaller parts, down to single bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

# What is refused is read again in so many parts.
_PARTS: Final = 16
# The columns of the rows from a first one up to another, or why one of them is bad.
RowsReader = Callable[[int, int], "list[pa.Array] | str"]


@dataclass(frozen=True, slots=True)
class ReadBodies:
    """A column for each field, null in the rows of bad bodies, and why those are bad."""

    columns: list[pa.Array]
    bad: dict[int, str]


def read_in_parts(
    schema: pa.Schema, count: int, bad: dict[int, str], read_rows: RowsReader
) -> ReadBodies:
    """All rows in their order; those that are known as bad are never read."""
    bad = dict(bad)
    columns: list[list[pa.Array]] = [[] for _ in schema]
    for first, stop in _stretches(count, sorted(bad)):
        if first in bad:
            _add_nulls(columns, schema)
            continue
        for row, found in _parts(read_rows, first, stop):
            if isinstance(found, str):
                bad[row] = found
                _add_nulls(columns, schema)
                continue
            for parts, column in zip(columns, found, strict=True):
                parts.append(column)
    joined = [joined_array(parts, field.type) for parts, field in zip(columns, schema, strict=True)]
    return ReadBodies(joined, bad)


def joined_array(parts: list[pa.Array], arrow_type: pa.DataType) -> pa.Array:
    """One array of several."""
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else pa.nulls(0, arrow_type)


def _parts(
    read_rows: RowsReader, first: int, stop: int
) -> Iterator[tuple[int, list[pa.Array] | str]]:
    """From which row on the columns of a stretch, or for one row why it is bad."""
    found = read_rows(first, stop)
    if not isinstance(found, str) or stop - first == 1:
        yield first, found
        return
    step = -(-(stop - first) // _PARTS)
    for at in range(first, stop, step):
        yield from _parts(read_rows, at, min(at + step, stop))


def _stretches(count: int, breaks: list[int]) -> Iterator[tuple[int, int]]:
    """All rows in stretches, each of the breaks alone."""
    first = 0
    for row in breaks:
        if first < row:
            yield first, row
        yield row, row + 1
        first = row + 1
    if first < count:
        yield first, count


def _add_nulls(columns: list[list[pa.Array]], schema: pa.Schema) -> None:
    """One row of nulls."""
    for parts, field in zip(columns, schema, strict=True):
        parts.append(pa.nulls(1, field.type))
