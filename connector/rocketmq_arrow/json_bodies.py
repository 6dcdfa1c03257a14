"""Reads JSON bodies into Arrow columns: one object a body, all by one call of Arrow's parser.

That parser reads whatever values follow each other in a text; it knows nothing of bodies, and fails
as a whole. So every object is given a first member that nobody else can write, its row's number
under a name made anew for each reader:

    {"order_id": 7}    becomes    {"5f0c...":10000042,"order_id": 7} newline

Rows that have numbers begin where their bodies begin, since only there such a member is the first
of an object at the top; what stands behind an object would be a row without a number, or an error.
The newline ends a string that a torn body has left open, as JSON strings hold none. So when all
numbers are there in their order, and no other row is, each body is exactly one object.

A text that is refused is read again in ever smaller parts, down to the bodies that are to blame:
what a body gives does not depend on its neighbours. A body is bad when it is not one JSON object in
UTF-8, when it names a wanted field twice, or when a value is not of its column's type: numbers are
not taken for texts, nor texts for numbers, nor 1.5 or 1e2 for integers. Fields that nobody wants
may be anything; what is missing is null.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from rocketmq_arrow.assemble import Constant, Ranges, Rows, assemble
from rocketmq_arrow.gather import Bytes, Positions, values_of
from rocketmq_arrow.numpy_arrays import int64_values
from rocketmq_arrow.read_bodies import ReadBodies, joined_array, read_in_parts

_OPENING: Final = ord("{")
_CLOSING: Final = ord("}")
_SPACES: Final = b" \t\r\n"
# All numbers have eight digits: no JSON number begins with a zero.
_NUMBER_MIN: Final = 10_000_000
_DIGITS: Final = 8
_READ: Final = "not one JSON object"
_OTHER_TYPE: Final = re.compile(r"Column\(/(.*)\) changed from (\w+) to (\w+)")
_TWICE: Final = re.compile(r"Column\(/(.*)\) was specified twice")
_OTHER_NUMBER: Final = re.compile(r"Failed to convert JSON to (\w+)")


class JsonBodies:
    """Reads bodies into columns of one schema; `name` is one that no body contains."""

    def __init__(self, schema: pa.Schema, name: str) -> None:
        self._schema = schema
        self._prefix = b'{"%s":' % name.encode()
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema([pa.field(name, pa.int64()), *schema]),
            unexpected_field_behavior="ignore",
        )

    def read(self, bodies: pa.BinaryArray) -> ReadBodies:
        """The columns of all bodies, in their order."""
        if bodies.null_count:
            bodies = bodies.fill_null(b"")
        data, offsets = values_of(bodies)
        text = _Texts(data, offsets[:-1].copy(), offsets[1:])
        bad = text.refuse_unreadable()
        return read_in_parts(
            self._schema, len(bodies), bad, lambda first, stop: self._try(text, first, stop)
        )

    def _try(self, text: _Texts, first: int, stop: int) -> list[pa.Array] | str:
        """The columns of some rows, or why one of them is bad."""
        joined = text.numbered(self._prefix, first, stop)
        # One block: rows are not to be cut at newlines, which may stand in a body.
        options = pj.ReadOptions(use_threads=False, block_size=len(joined) + 1)
        try:
            table = pj.read_json(pa.BufferReader(joined), options, self._options)
        except pa.ArrowInvalid as error:
            return _shown(error)
        numbers = table.column(0).combine_chunks()
        if len(numbers) != stop - first or numbers.null_count:
            return _READ
        expected = np.arange(_NUMBER_MIN, _NUMBER_MIN + stop - first)
        if (int64_values(numbers) != expected).any():
            return _READ
        return [joined_array(column.chunks, column.type) for column in table.columns[1:]]


@dataclass(slots=True)
class _Texts:
    """Where the bodies lie, without the white space before them."""

    data: Bytes
    starts: Positions
    ends: Positions

    def refuse_unreadable(self) -> dict[int, str]:
        """Bodies that cannot even be looked at together with others, and why."""
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
        if not _is_utf8(data):
            for row in range(len(starts)):
                if not _is_utf8(data[starts[row] : ends[row]]):
                    bad.setdefault(row, "not UTF-8")
        # White space to nobody, and for some versions of the parser the end of the text.
        zeros = np.flatnonzero(data == 0) if len(data) and not data.min() else ()
        for place in zeros:
            row = int(np.searchsorted(ends, place, "right"))
            if starts[row] <= place < ends[row]:
                bad.setdefault(row, _READ)
        return bad

    def numbered(self, prefix: bytes, first: int, stop: int) -> Bytes:
        """The rows with their numbers as first members, a line each."""
        count = stop - first
        starts, ends = self.starts[first:stop] + 1, self.ends[first:stop]
        head = np.empty((count, len(prefix) + _DIGITS), np.uint8)
        head[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
        numbers = np.arange(_NUMBER_MIN, _NUMBER_MIN + count)
        for place in range(_DIGITS):
            head[:, -1 - place] = numbers % 10 + ord("0")
            numbers //= 10
        has_members = np.ones(count, np.bool_)
        inside = starts < ends
        has_members[inside] = self.data[starts[inside]] != _CLOSING
        if count == 1:
            rest = self.data[starts[0] : ends[0]].tobytes()
            has_members[0] = not rest.lstrip(_SPACES).startswith(b"}")
        base = int(self.starts[first])
        bodies = Ranges(self.data[base : int(ends[-1])], starts - base, ends - base)
        return assemble([Rows(head), Constant(b",", has_members), bodies, Constant(b"\n")], count)[
            0
        ]


def _is_utf8(data: Bytes) -> bool:
    try:
        str(data.data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _shown(error: pa.ArrowInvalid) -> str:
    """What the parser says, without the value that it could not take and its own row numbers."""
    words = str(error).removeprefix("JSON parse error: ")
    if found := _OTHER_TYPE.match(words):
        return f"field '{found[1]}' is of type {found[3]}, not {found[2]}"
    if found := _TWICE.match(words):
        return f"field '{found[1]}' is named twice"
    if found := _OTHER_NUMBER.match(words):
        return f"a value is no {found[1]}"
    return f"{_READ}: {words.partition(' in row ')[0].rstrip('.').lower()}"
