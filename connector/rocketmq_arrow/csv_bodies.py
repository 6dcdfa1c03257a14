"""Reads CSV bodies into Arrow columns: one line a body, all by one call of Arrow's parser.

That parser knows nothing of bodies, and fails as a whole. So every body is given a first field
that nobody else can write: digits made anew for each reader, then its row's number.

    7,"Ulm"    becomes    483920157610000042,7,"Ulm" newline

When all those numbers begin rows, in their order, and no other row is there, each body is exactly
one row: a quote that a body leaves open would swallow the next body's number, and a line break
outside of quotes would begin a row without one. A last line of nulls behind the bodies is what an
open quote of the last one swallows.

A text that is refused is read again in ever smaller parts, down to the bodies that are to blame:
what a body gives does not depend on its neighbours. A body is bad when it is empty, when it has
another number of fields than the schema, or when a field is not of its column's type.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from rocketmq_arrow.assemble import Constant, Ranges, Rows, assemble
from rocketmq_arrow.gather import values_of
from rocketmq_arrow.numpy_arrays import int64_values
from rocketmq_arrow.read_bodies import ReadBodies, joined_array, read_in_parts

_LINE_BREAKS: Final = (ord("\n"), ord("\r"))
# Ten digits that nobody knows and eight of the row's number are an int64.
_SECRET_MIN: Final = 10**9
_NUMBER_MIN: Final = 10_000_000
_DIGITS: Final = 8
_NUMBER: Final = "row"
_OTHER_TYPE: Final = re.compile(
    r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to [^:]+: (invalid UTF8)?"
)
_TRUE: Final = ["true", "True", "TRUE"]
_FALSE: Final = ["false", "False", "FALSE"]


class CsvBodies:
    """Reads bodies into columns of one schema; `name` is hexadecimal, and unknown to others."""

    def __init__(
        self, schema: pa.Schema, name: str, *, delimiter: str = ",", null_value: str = ""
    ) -> None:
        self._schema = schema
        self._secret = _SECRET_MIN + int(name, 16) % (9 * _SECRET_MIN)
        self._delimiter = delimiter.encode()
        self._last_line = self._delimiter.join([null_value.encode()] * len(schema)) + b"\n"
        # Names that fields may share are no matter: the parser is given numbers.
        self._names = [_NUMBER, *map(str, range(len(schema)))]
        self._parse = pc.ParseOptions(delimiter=delimiter, newlines_in_values=False)
        kinds = [pa.int64(), *schema.types]
        self._convert = pc.ConvertOptions(
            column_types=dict(zip(self._names, kinds, strict=True)),
            null_values=[null_value],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=_TRUE,
            false_values=_FALSE,
        )

    def read(self, bodies: pa.BinaryArray) -> ReadBodies:
        """The columns of all bodies, in their order."""
        if bodies.null_count:
            bodies = bodies.fill_null(b"")
        data, offsets = values_of(bodies)
        starts, ends = offsets[:-1], offsets[1:]
        bad = dict.fromkeys(np.flatnonzero(ends == starts).tolist(), "empty")
        filled = np.flatnonzero(ends > starts)
        breaks = filled[np.isin(data[starts[filled]], _LINE_BREAKS)]
        bad |= dict.fromkeys(breaks.tolist(), "begins with a line break")

        def read_rows(first: int, stop: int) -> list[pa.Array] | str:
            base = int(starts[first])
            bytes_of = data[base : int(ends[stop - 1])]
            return self._rows(Ranges(bytes_of, starts[first:stop] - base, ends[first:stop] - base))

        return read_in_parts(self._schema, len(bodies), bad, read_rows)

    def _rows(self, bodies: Ranges) -> list[pa.Array] | str:
        """The columns of some bodies, or why one of them is bad."""
        count = len(bodies.starts)
        first = self._secret * 10**_DIGITS + _NUMBER_MIN
        head = _decimals(first, count, self._delimiter)
        lines = assemble([Rows(head), bodies, Constant(b"\n")], count)[0]
        last = b"%d%s%s" % (first + count, self._delimiter, self._last_line)
        text = b"".join((lines.data, last))
        # One block: rows are not to be cut at line breaks, which may stand in a body.
        options = pc.ReadOptions(
            use_threads=False, block_size=len(text) + 1, column_names=self._names
        )
        try:
            table = pc.read_csv(pa.BufferReader(text), options, self._parse, self._convert)
        except pa.ArrowInvalid as error:
            return self._shown(error)
        numbers = joined_array(table.column(0).chunks, pa.int64())
        if len(numbers) != count + 1 or numbers.null_count:
            return "not one line"
        if (int64_values(numbers) != np.arange(first, first + count + 1)).any():
            return "not one line"
        return [
            joined_array(column.chunks, column.type).slice(0, count) for column in table.columns[1:]
        ]

    def _shown(self, error: pa.ArrowInvalid) -> str:
        """What the parser says, without the value that it could not take."""
        found = _OTHER_TYPE.match(str(error))
        if found and 0 < int(found[1]) <= len(self._schema):
            field = self._schema.field(int(found[1]) - 1)
            wrong = "not UTF-8" if found[2] else f"no {field.type}"
            return f"field '{field.name}' is {wrong}"
        return f"not one line of {len(self._schema)} fields"


def _decimals(
    first: int, count: int, after: bytes
) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Numbers that follow each other and differ in their last digits only, with a byte behind."""
    secret = str(first)[:-_DIGITS].encode()
    rows = np.empty((count, len(secret) + _DIGITS + 1), np.uint8)
    rows[:, : len(secret)] = np.frombuffer(secret, np.uint8)
    numbers = np.arange(_NUMBER_MIN, _NUMBER_MIN + count)
    for place in range(_DIGITS):
        rows[:, -2 - place] = numbers % 10 + ord("0")
        numbers //= 10
    rows[:, -1] = after[0]
    return rows
