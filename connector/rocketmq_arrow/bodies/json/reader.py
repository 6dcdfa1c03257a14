"""Reads JSON bodies into Arrow columns: one object a body.

Uniform bodies, as one program writes them, are read without a parser (`uniform`) and give the
values that the parser would give. All others take one call of Arrow's parser.

That parser reads whatever values follow each other in a text; it knows nothing of bodies, and fails
as a whole. So every object gets a first member with a name that no body can contain, since each
reader makes a new one:

    {"order_id": 7}    becomes    {"5f0c...":true,"order_id": 7} newline

A row with that member begins where a body begins, since its brace comes before it; no row has two;
text behind an object would be a row without it, or an error. The newline ends a
string that a torn body has left open, as JSON strings hold none. So when there are as many rows as
bodies and every row has the member, each body is exactly one object.

A text that the parser refuses is read again without the bad bodies (`read_bodies`): the values of a
body do not depend on its neighbours. A body is bad when it is not one JSON object in UTF-8, when
it names a wanted field twice, or when a value is not of its column's type: numbers are not taken
for texts, nor texts for numbers, nor 1.5 or 1e2 for integers. Fields outside the schema may be
anything; missing ones are null.

Of the 560 ns that a body of 100 bytes takes then, the parser takes 510 and the joining 25. It
spends 310 on the text whatever is wanted; numbers as members cost 60 more than `true`; chunks of
1,000 to 20,000 bodies and other memory pools make no difference. Uniform bodies take 225.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from rocketmq_arrow.bodies.json.uniform import UniformBodies
from rocketmq_arrow.bodies.json.validation import JsonValidation
from rocketmq_arrow.bodies.patterns import matches
from rocketmq_arrow.bodies.read import ReadBodies, Validity, joined_array, read_bodies
from rocketmq_arrow.kernels.assemble import Constant, Ranges, assemble
from rocketmq_arrow.kernels.gather import Bytes, Mask, Positions, is_utf8, take_binary, values_of

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
        texts = objects.texts
        read = read_bodies(
            self._schema,
            len(bodies),
            refused,
            objects,
            known=self._uniform.read(texts.data, texts.starts, texts.ends, refused),
            screen_first=self._had_bad,
        )
        self._had_bad = len(read.bad) > len(refused)
        return read

    def prepared(self, bodies: pa.BinaryArray) -> tuple[dict[int, str], _Objects]:
        """Which bodies are never read and why, and all of them for `read_bodies`."""
        if bodies.null_count:
            bodies = bodies.fill_null(b"")
        data, offsets = values_of(bodies)
        texts = _Texts(data, offsets[:-1].copy(), offsets[1:])
        refused = texts.refuse_unreadable()
        return refused, _Objects(texts, self._prefix, self._options, self._validation)


@dataclass(frozen=True, slots=True)
class _Objects:
    """The bodies of one chunk."""

    texts: _Texts
    prefix: bytes
    options: pj.ParseOptions
    validation: JsonValidation

    def columns(self, rows: Positions) -> list[pa.Array] | str:
        joined = self.texts.marked(self.prefix, rows)
        # One block: rows are not to be cut at newlines, which may stand in a body.
        options = pj.ReadOptions(use_threads=False, block_size=len(joined) + 1)
        try:
            table = pj.read_json(pa.BufferReader(joined), options, self.options)
        except pa.ArrowInvalid as error:
            return _shown(error)
        if len(table) != len(rows) or table.column(0).null_count:
            return _READ
        return [joined_array(column.chunks, column.type) for column in table.columns[1:]]

    def seem_valid(self, rows: Positions) -> Mask:
        ends = self.texts.ends[rows]
        mask = self.texts.matches(self.validation.pattern, rows)
        mask &= self.texts.data[ends - 1] != _COMMA
        return mask

    def validity(self, row: int) -> Validity:
        return self.validation.validity(self.texts.body(row))


@dataclass(slots=True)
class _Texts:
    """Where the bodies lie, without the white space before them."""

    data: Bytes
    starts: Positions
    ends: Positions

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

    def body(self, row: int) -> bytes:
        """One body."""
        return self.data[self.starts[row] : self.ends[row]].tobytes()

    def matches(self, pattern: str, rows: Positions) -> Mask:
        """In which of the rows a regular expression finds something."""
        bodies = take_binary(self.data, self.starts[rows], self.ends[rows])
        return matches(bodies, pattern)

    def marked(self, prefix: bytes, rows: Positions) -> Bytes:
        """The rows with the prefix for their braces, a line each."""
        starts, ends = self.starts[rows] + 1, self.ends[rows]
        has_members = np.ones(len(rows), np.bool_)
        inside = np.flatnonzero(starts < ends)
        second = self.data[starts[inside]]
        has_members[inside] = second != _CLOSING
        spaced = inside[second <= _SPACE]
        if len(spaced):
            has_members[spaced] = ~self.matches(_EMPTY, rows[spaced])
        base = int(starts[0])
        bodies = Ranges(self.data[base : int(ends[-1])], starts - base, ends - base)
        pieces = (Constant(prefix), Constant(b",", has_members), bodies, Constant(b"\n"))
        return assemble(pieces, len(rows))[0]


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
