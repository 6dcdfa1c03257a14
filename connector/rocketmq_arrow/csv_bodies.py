"""Reads CSV bodies into Arrow columns: one line a body, all by one call of Arrow's parser.

That parser knows nothing of bodies, and fails as a whole. So every body is given a first field
that nobody else can write, a number made anew for each reader.

    7,"Ulm"    becomes    4839201576104835921,7,"Ulm" newline

When there are as many rows as bodies and each begins with that number, each body is exactly one
row: a quote that a body leaves open would swallow the next body's number, and a line break outside
of quotes would begin a row without one. A last line of nulls behind the bodies is what an open
quote of the last one swallows.

A text that is refused is read without the bodies that are to blame (`read_bodies`): what a body
gives does not depend on its neighbours. A body is bad when it is empty, when its quotes are not in
order (`csv_quotes`), when it has another number of fields than the schema, or when a field is not
of its column's type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from rocketmq_arrow.assemble import Constant, Ranges, assemble
from rocketmq_arrow.body_patterns import matches
from rocketmq_arrow.csv_quotes import CsvQuotes
from rocketmq_arrow.csv_verdicts import FALSE, TRUE, CsvVerdicts
from rocketmq_arrow.gather import Bytes, Mask, Positions, is_utf8, take_binary, values_of
from rocketmq_arrow.numpy_arrays import int64_values
from rocketmq_arrow.read_bodies import Bodies, ReadBodies, Verdict, joined_array, read_bodies

_LINE_BREAKS: Final = (ord("\n"), ord("\r"))
# Nineteen digits at most, as an int64 takes.
_MARK_MIN: Final = 10**18
_MARK: Final = "mark"
_READ: Final = "not one line"
_OTHER_TYPE: Final = re.compile(
    r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to [^:]+: (invalid UTF8)?"
)


class CsvBodies:
    """Reads bodies into columns of one schema; `name` is hexadecimal, and unknown to others."""

    def __init__(
        self, schema: pa.Schema, name: str, *, delimiter: str = ",", null_value: str = ""
    ) -> None:
        self._schema = schema
        self._mark = _MARK_MIN + int(name, 16) % (8 * _MARK_MIN)
        self._prefix = b"%d%s" % (self._mark, delimiter.encode())
        self._last_line = self._prefix + delimiter.join([null_value] * len(schema)).encode() + b"\n"
        # Names that fields may share are no matter: the parser is given numbers.
        self._names = [_MARK, *map(str, range(len(schema)))]
        self._parse = pc.ParseOptions(delimiter=delimiter, newlines_in_values=False)
        kinds = [pa.int64(), *schema.types]
        self._convert = pc.ConvertOptions(
            column_types=dict(zip(self._names, kinds, strict=True)),
            # Nothing at all is null beside another word, too, as Spark has it.
            null_values=[null_value, ""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=TRUE,
            false_values=FALSE,
        )
        self._quotes = CsvQuotes(delimiter)
        self._verdicts = CsvVerdicts(schema, delimiter, null_value)
        self._not_a_line = f"not one line of {len(schema)} fields"
        self._had_bad = False

    def read(self, bodies: pa.BinaryArray) -> ReadBodies:
        """The columns of all bodies, in their order."""
        refused, lines = self.prepared(bodies)
        read = read_bodies(self._schema, len(bodies), refused, lines, glance_first=self._had_bad)
        self._had_bad = len(read.bad) > len(refused)
        return read

    def prepared(self, bodies: pa.BinaryArray) -> tuple[dict[int, str], Bodies]:
        """Which bodies are never read and why, and all of them for `read_bodies`."""
        if bodies.null_count:
            bodies = bodies.fill_null(b"")
        bodies, disordered = self._quotes.settled(bodies)
        data, offsets = values_of(bodies)
        starts, ends = offsets[:-1], offsets[1:]
        refused = dict.fromkeys(np.flatnonzero(ends == starts).tolist(), "empty")
        filled = np.flatnonzero(ends > starts)
        breaks = filled[np.isin(data[starts[filled]], _LINE_BREAKS)]
        refused |= dict.fromkeys(breaks.tolist(), "begins with a line break")
        refused |= {row: f"{self._not_a_line}: {why}" for row, why in disordered.items()}
        return refused, _Lines(data, starts, ends, self._columns, self._verdicts)

    def _columns(self, bodies: Ranges) -> list[pa.Array] | str:
        """The columns of some bodies, or why one of them is bad."""
        count = len(bodies.starts)
        lines = assemble([Constant(self._prefix), bodies, Constant(b"\n")], count)[0]
        text = b"".join((lines.data, self._last_line))
        # One block: rows are not to be cut at line breaks, which may stand in a body.
        options = pc.ReadOptions(
            use_threads=False, block_size=len(text) + 1, column_names=self._names
        )
        try:
            table = pc.read_csv(pa.BufferReader(text), options, self._parse, self._convert)
        except pa.ArrowInvalid as error:
            return self._shown(error)
        marks = joined_array(table.column(0).chunks, pa.int64())
        if len(marks) != count + 1 or marks.null_count:
            return _READ
        if (int64_values(marks) != self._mark).any():
            return _READ
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
        return self._not_a_line


@dataclass(frozen=True, slots=True)
class _Lines:
    """The bodies of one chunk."""

    data: Bytes
    starts: Positions
    ends: Positions
    read: Callable[[Ranges], list[pa.Array] | str]
    verdicts: CsvVerdicts

    def columns(self, rows: Positions) -> list[pa.Array] | str:
        starts, ends = self.starts[rows], self.ends[rows]
        base = int(starts[0])
        return self.read(Ranges(self.data[base : int(ends[-1])], starts - base, ends - base))

    def looks_good(self, rows: Positions) -> Mask:
        bodies = take_binary(self.data, self.starts[rows], self.ends[rows])
        mask = matches(bodies, self.verdicts.pattern)
        if not is_utf8(self.data):
            mask &= [is_utf8(self.data[self.starts[row] : self.ends[row]]) for row in rows]
        return mask

    def verdict(self, row: int) -> Verdict:
        return self.verdicts.verdict(self.data[self.starts[row] : self.ends[row]].tobytes())
