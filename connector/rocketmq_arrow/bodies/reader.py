"""Reads JSON bodies into Arrow columns: one object a body.

Uniform bodies, as one program writes them, are read without a parser (`uniform`) and give the
values that the parser would give. All others take one call of Arrow's parser.

That parser reads whatever values follow each other in a text; it knows nothing of bodies, and fails
as a whole. So every object gets a first member with a name that no body can contain, since each
reader makes a new one:

    {"order_id": 7}    becomes    {"5f0c...":true,"order_id": 7} newline

A row with that member begins where a body begins, since its brace comes before it; no row has two;
text behind an object would be a row without it, or an error. The newline ends a string that a torn
body has left open, as JSON strings hold none. So when there are as many rows as bodies and every
row has the member, each body is exactly one object.

The values of a body do not depend on its neighbours, so a text that the parser refuses is read
again without the bad bodies. A call costs 50 to 100 microseconds, so these are not searched with
it: a regular expression over all bodies leaves the suspects, and a parser of single bodies in
Python validates those. If the next call fails, too, the other bodies are validated as well; if that
does not help, the rows are read in smaller and smaller parts.

A body is bad when it is not one JSON object in UTF-8, when it names a wanted field twice, or when a
value is not of its column's type: numbers are not taken for texts, nor texts for numbers, nor 1.5
or 1e2 for integers. Fields outside the schema may be anything; missing ones are null.

Of the 560 ns that a body of 100 bytes takes then, the parser takes 510 and the joining 25. It
spends 310 on the text whatever is wanted; numbers as members cost 60 more than `true`; chunks of
1,000 to 20,000 bodies and other memory pools make no difference. Uniform bodies take 225. With
0.1 % or 1 % of bad bodies it is 1.1 microseconds a body, with 10 % 1.5, and 4.2 when all are bad;
smaller and smaller parts alone took 8.5 with 0.1 %, 44 with 1 %, and 150 and 260.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from rocketmq_arrow.bodies.numbers import matches
from rocketmq_arrow.bodies.uniform import KnownRows, UniformBodies
from rocketmq_arrow.bodies.validation import JsonValidation, Validity
from rocketmq_arrow.kernels.assemble import Constant, Ranges, assemble
from rocketmq_arrow.kernels.gather import Bytes, Mask, Positions, is_utf8, take_binary, values_of
from rocketmq_arrow.kernels.numpy_arrays import array_of

_OPENING: Final = ord("{")
_COMMA: Final = ord(",")
_CLOSING: Final = ord("}")
_SPACES: Final = b" \t\r\n"
_SPACE: Final = ord(" ")
_EMPTY: Final = r"^\{[ \t\r\n]*\}"
_READ: Final = "not one JSON object"
_OTHER_TYPE: Final = re.compile(r"Column\(/(.*)\) changed from (\w+) to (\w+)")
_TWICE: Final = re.compile(r"Column\(/(.*)\) was specified twice")
_OTHER_NUMBER: Final = re.compile(r"Failed to convert JSON to (\w+)")
# Refused rows are read again in this many parts.
_PARTS: Final = 16
# Compiling the regular expression, once per call, takes as long as validating this many bodies.
_SUSPECTED_MIN: Final = 200


@dataclass(frozen=True, slots=True)
class ReadBodies:
    """A column for each field, null in the rows of bad bodies, which ascend."""

    columns: list[pa.Array]
    bad: list[int]
    why: Callable[[int], str]
    """Why the body of a bad row is bad."""


class JsonBodies:
    """Reads bodies into columns of one schema; `name` is one that no body contains."""

    def __init__(self, schema: pa.Schema, name: str) -> None:
        self._schema = schema
        self._prefix = b'{"%s":true' % name.encode()
        self._validation = JsonValidation(schema)
        self._uniform = UniformBodies(schema)
        self._had_bad = False
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema([pa.field(name, pa.bool_()), *schema]),
            unexpected_field_behavior="ignore",
        )

    def read(self, bodies: pa.BinaryArray) -> ReadBodies:
        """The columns of all bodies, in their order."""
        refused, objects = self.prepared(bodies)
        known = self._uniform.read(objects.data, objects.starts, objects.ends, refused)
        # Where bad bodies are likely, it pays to screen them before the first call.
        read = read_bodies(self._schema, refused, objects, known, screen_first=self._had_bad)
        self._had_bad = len(read.bad) > len(refused)
        return read

    def prepared(self, bodies: pa.BinaryArray) -> tuple[dict[int, str], Objects]:
        """Which bodies are never read and why, and all of them for `read_bodies`."""
        if bodies.null_count:
            bodies = bodies.fill_null(b"")
        data, offsets = values_of(bodies)
        objects = Objects(
            data, offsets[:-1].copy(), offsets[1:], self._prefix, self._options, self._validation
        )
        return objects.refuse_unreadable(), objects


@dataclass(slots=True)
class Objects:
    """The bodies of one chunk, without the white space before them; rows are ascending."""

    data: Bytes
    starts: Positions
    ends: Positions
    prefix: bytes
    options: pj.ParseOptions
    validation: JsonValidation

    def refuse_unreadable(self) -> dict[int, str]:
        """Bodies that must not be joined with others, and why."""
        bad: dict[int, str] = {}
        data, starts, ends = self.data, self.starts, self.ends
        filled = np.flatnonzero(ends > starts)
        is_object = np.zeros(len(starts), np.bool_)
        is_object[filled] = data[starts[filled]] == _OPENING
        for row in np.flatnonzero(~is_object).tolist():
            body = data[starts[row] : ends[row]].tobytes()
            starts[row] += len(body) - len(body.lstrip(_SPACES))
            if starts[row] == ends[row] or data[starts[row]] != _OPENING:
                bad[row] = _READ
        if not is_utf8(data):
            for row in range(len(starts)):
                if not is_utf8(data[starts[row] : ends[row]]):
                    bad.setdefault(row, "not UTF-8")
        # Not white space in JSON, and the end of the text for some versions of the parser.
        if len(data) and not data.min():
            zeros = np.flatnonzero(data == 0)
            rows = np.searchsorted(ends, zeros, "right")
            for row in np.unique(rows[zeros >= starts[rows]]).tolist():
                bad.setdefault(row, _READ)
        return bad

    def columns(self, rows: Positions) -> list[pa.Array] | str:
        """The columns of some rows, or why one of them is bad."""
        joined = self._marked(rows)
        # One block: rows are not to be cut at newlines, which may stand in a body.
        options = pj.ReadOptions(use_threads=False, block_size=len(joined) + 1)
        try:
            table = pj.read_json(pa.BufferReader(joined), options, self.options)
        except pa.ArrowInvalid as error:
            return _shown(error)
        if len(table) != len(rows) or table.column(0).null_count:
            return _READ
        return [_joined_array(column.chunks, column.type) for column in table.columns[1:]]

    def seem_valid(self, rows: Positions) -> Mask:
        """Which rows a quick check accepts; it hardly ever accepts a bad one."""
        mask = self._matches(self.validation.pattern, rows)
        mask &= self.data[self.ends[rows] - 1] != _COMMA
        return mask

    def validity(self, row: int) -> Validity:
        return self.validation.validity(self.data[self.starts[row] : self.ends[row]].tobytes())

    def _matches(self, pattern: str, rows: Positions) -> Mask:
        bodies = take_binary(self.data, self.starts[rows], self.ends[rows])
        return matches(bodies, pattern)

    def _marked(self, rows: Positions) -> Bytes:
        """The rows with the prefix for their braces, a line each."""
        starts, ends = self.starts[rows] + 1, self.ends[rows]
        has_members = np.ones(len(rows), np.bool_)
        inside = np.flatnonzero(starts < ends)
        second = self.data[starts[inside]]
        has_members[inside] = second != _CLOSING
        spaced = inside[second <= _SPACE]
        if len(spaced):
            has_members[spaced] = ~self._matches(_EMPTY, rows[spaced])
        base = int(starts[0])
        bodies = Ranges(self.data[base : int(ends[-1])], starts - base, ends - base)
        pieces = (Constant(self.prefix), Constant(b",", has_members), bodies, Constant(b"\n"))
        return assemble(pieces, len(rows))[0]


def read_bodies(
    schema: pa.Schema,
    refused: dict[int, str],
    bodies: Objects,
    known: Sequence[KnownRows] = (),
    *,
    screen_first: bool = False,
) -> ReadBodies:
    """Reads all rows in their order, except those that are refused or known already."""
    count = len(bodies.starts)
    is_good = np.ones(count, np.bool_)
    is_good[list(refused)] = False
    for part in known:
        is_good[part.rows] = False
    if screen_first:
        is_good[_bad_ones(bodies, _suspects(bodies, np.flatnonzero(is_good)))] = False
    columns = _columns_of_good(schema, bodies, is_good)
    parts = [KnownRows(np.flatnonzero(is_good), columns), *known]
    columns, bad = _joined_parts(schema, count, [part for part in parts if len(part.rows)])

    def why(row: int) -> str:
        reason = refused.get(row) or bodies.columns(np.array([row]))
        assert isinstance(reason, str), f"row {row} was marked as bad"
        return reason

    return ReadBodies(columns, bad.tolist(), why)


def _joined_array(parts: list[pa.Array], arrow_type: pa.DataType) -> pa.Array:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else pa.nulls(0, arrow_type)


def _joined_parts(
    schema: pa.Schema, count: int, parts: list[KnownRows]
) -> tuple[list[pa.Array], Positions]:
    """The columns of all rows in their order, and the rows that are in no part."""
    columns = [
        _joined_array([part.columns[index] for part in parts], field.type)
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


def _columns_of_good(schema: pa.Schema, bodies: Objects, is_good: Mask) -> list[pa.Array]:
    """The columns of the good rows; clears the mask for the bad ones."""
    for are_screened in (True, False):
        rows = np.flatnonzero(is_good)
        if not len(rows):
            return [pa.nulls(0, field.type) for field in schema]
        found = bodies.columns(rows)
        if not isinstance(found, str):
            return found
        is_good[_bad_ones(bodies, _suspects(bodies, rows) if are_screened else rows)] = False
    columns: list[list[pa.Array]] = [[] for _ in schema]
    for part, found in _parts(bodies, np.flatnonzero(is_good)):
        if isinstance(found, str):
            is_good[part] = False
            continue
        for parts, column in zip(columns, found, strict=True):
            parts.append(column)
    return [_joined_array(parts, field.type) for parts, field in zip(columns, schema, strict=True)]


def _suspects(bodies: Objects, rows: Positions) -> Positions:
    if len(rows) < _SUSPECTED_MIN:
        return rows
    suspects: Positions = rows[~bodies.seem_valid(rows)]
    return suspects


def _bad_ones(bodies: Objects, rows: Positions) -> list[int]:
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


def _parts(bodies: Objects, rows: Positions) -> Iterator[tuple[Positions, list[pa.Array] | str]]:
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


def _shown(error: pa.ArrowInvalid) -> str:
    """The parser's error without the refused value and without its own row numbers."""
    words = str(error).removeprefix("JSON parse error: ")
    if found := _OTHER_TYPE.match(words):
        return f"field '{found[1]}' is of type {found[3]}, not {found[2]}"
    if found := _TWICE.match(words):
        return f"field '{found[1]}' is named twice"
    if found := _OTHER_NUMBER.match(words):
        return f"a value is no {found[1]}"
    return f"{_READ}: {words.partition(' in row ')[0].rstrip('.').lower()}"
