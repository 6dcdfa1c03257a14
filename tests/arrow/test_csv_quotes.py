"""Bodies with settled quotes say to a reader of doubled quotes what they said with backslashes."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketmq_arrow.csv_quotes import CsvQuotes


def fields_of(body: str, delimiter: str) -> list[str] | None:
    """What one line means, read character by character; None when nobody can tell."""
    fields: list[str] = []
    has_escaped = has_doubled = False
    at = 0
    while True:
        field = ""
        if body[at : at + 1] == '"':
            at += 1
            while True:
                if at >= len(body):
                    return None
                two = body[at : at + 2]
                if two in ('\\"', "\\\\", '""'):
                    has_escaped |= two != '""'
                    has_doubled |= two == '""'
                    field += two[1]
                    at += 2
                elif body[at] == '"':
                    at += 1
                    break
                else:
                    field += body[at]
                    at += 1
            while at < len(body) and body[at] in " \t" and body[at] != delimiter:
                at += 1
        else:
            while at < len(body) and body[at] != delimiter:
                field += body[at]
                at += 1
        fields.append(field)
        if at >= len(body):
            return None if has_escaped and has_doubled else fields
        if body[at] != delimiter:
            return None
        at += 1


def doubled_fields_of(body: bytes, delimiter: str) -> list[str]:
    reader = csv.reader(io.StringIO(body.decode(), newline=""), delimiter=delimiter, strict=True)
    return next(reader, [""])


def settle(bodies: list[bytes], delimiter: str = ",") -> tuple[list[bytes], dict[int, str]]:
    settled, bad = CsvQuotes(delimiter).settled(pa.array(bodies, pa.binary()))
    settled.validate(full=True)
    found: list[bytes] = settled.to_pylist()
    return found, bad


PIECES = st.lists(st.sampled_from(['"', "\\", ",", "a", "ö", '\\"', '"a"', ' "', '" ', "\t", ";"]))
QUOTED = st.lists(st.sampled_from(["a", "\\\\", '\\"', "\\a", ",", ";", "ö"])).map(
    lambda pieces: f'"{"".join(pieces)}"'
)
BODIES = st.one_of(PIECES.map("".join), st.lists(QUOTED | PIECES.map("".join)).map(",".join))


@given(st.lists(BODIES, max_size=30), st.sampled_from(",;\t"))
@example(['x\\"",y"'], ",")
@example(["a\\", '"b"', "\\", '"c\\', '"'], ",")
@example(["\\", "\\", '"a\\\\"'], ",")
@example(['"a\\""', '"a\\\\""', '"a""b\\\\"'], ",")
@settings(max_examples=400, deadline=None)
def test_all_bodies_together_are_settled_as_each_is_meant(
    bodies: list[str], delimiter: str
) -> None:
    settled, bad = settle([body.encode() for body in bodies], delimiter)
    for row, body in enumerate(bodies):
        meant = fields_of(body, delimiter)
        assert (row in bad) == (meant is None), body
        if meant is not None:
            assert doubled_fields_of(settled[row], delimiter) == meant, body


@pytest.mark.parametrize(
    "body", [b"", b"1,a", b'1,"a"', b'1,"a""b"', b'"a\nb"\r\n', b"a\\b,c\\\\d", rb'1,"a\b"']
)
def test_what_is_known_already_stays_as_it_is(body: bytes) -> None:
    assert settle([body]) == ([body], {})


def test_a_slice_is_settled_without_its_neighbours() -> None:
    bodies = pa.array([b'1,"a"b', rb'2,"a\"b"', b"3,a", b'4,"'], pa.binary())
    settled, bad = CsvQuotes(",").settled(bodies.slice(1, 2))
    assert (settled.to_pylist(), bad) == ([b'2,"a""b"', b"3,a"], {})
