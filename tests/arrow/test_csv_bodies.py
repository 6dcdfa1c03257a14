"""A CSV body gives the row that reading it alone gives, whatever stands in the others."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketmq_arrow.csv_bodies import CsvBodies
from rocketmq_arrow.read_bodies import Verdict, read_bodies
from support.counted_bodies import CountedBodies

NAME = "5f0c6d1e2a3b4c5d"
SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.string()), ("b", pa.bool_()), ("d", pa.float64())])


def alone(body: bytes, delimiter: str = ",", null_value: str = "") -> dict[str, Any] | None:
    """The row of one body, by Python's own reader; None when it is bad."""
    if not body or body[0] in b"\r\n":
        return None
    try:
        text = io.StringIO(body.decode(), newline="")
        # Strict, it refuses a quote that is left open, and what stands behind a closing one.
        rows = [row for row in csv.reader(text, delimiter=delimiter, strict=True) if row]
        (fields,) = rows
        number, note, flag, amount = fields
    except (ValueError, csv.Error):
        return None
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    if number != null_value:
        if not re.fullmatch(r"-?\d{1,19}", number) or not -(2**63) <= int(number) < 2**63:
            return None
        row["a"] = int(number)
    row["s"] = None if note == null_value and f'"{note}"' not in body.decode() else note
    if flag != null_value:
        if flag.lower() not in ("true", "false"):
            return None
        row["b"] = flag.lower() == "true"
    if amount != null_value:
        if not re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", amount):
            return None
        row["d"] = float(amount)
    return row


def rows_of(bodies: list[bytes | None], **how: Any) -> tuple[list[dict[str, Any]], dict[int, str]]:
    read = CsvBodies(SCHEMA, NAME, **how).read(pa.array(bodies, pa.binary()))
    batch = pa.RecordBatch.from_arrays(read.columns, schema=SCHEMA)
    batch.validate(full=True)
    return batch.to_pylist(), {row: read.why(row) for row in read.bad}


def check(bodies: list[bytes], **how: Any) -> None:
    rows, bad = rows_of(list(bodies), **how)
    nothing = dict.fromkeys(SCHEMA.names)
    assert len(rows) == len(bodies)
    for row, (found, body) in enumerate(zip(rows, bodies, strict=True)):
        wanted = alone(body, **how)
        assert (row in bad) == (wanted is None), (body, bad.get(row))
        assert found == (nothing if wanted is None else wanted), body


def written(values: list[Any], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerow(values)
    return text.getvalue().removesuffix("\r\n").encode()


TEXTS = st.text(st.sampled_from("ab\"',;\n\r ö1"), max_size=6).filter(lambda text: text != "")
ORDERS = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | TEXTS,
    st.none() | st.booleans(),
    st.none() | st.floats(-1e9, 1e9).map(lambda number: round(number, 3)),
)


@given(st.lists(ORDERS, max_size=40), st.sampled_from(",;|\t"))
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read(orders: list[tuple[Any, ...]], delimiter: str) -> None:
    bodies = [written(list(order), delimiter) for order in orders]
    rows, bad = rows_of(list(bodies), delimiter=delimiter)
    assert not bad
    assert [tuple(row.values()) for row in rows] == orders


TORN = st.lists(st.sampled_from([b"1", b"x", b'"', b",", b"\n", b"\r\n", b"ab", b"true", b"\xff"]))
BODIES = st.one_of(
    ORDERS.map(lambda order: written(list(order))),
    TORN.map(b"".join).filter(lambda body: b'"' not in body),
    st.sampled_from([b'1,"a', b'"', b'1,"a,true,1\n2,b', b'1,"a\n', b",,,", b"1,a,true,1\r\n"]),
)


@given(st.lists(BODIES, max_size=40))
@example([b'1,"a', b'2,"b",true,1', b'",true,1', b"3,c,true,1"])
@example([b"1,a,true,1\n2,b,true,2", b'3,"c', b"4,d,true,4"])
@example([b"\xef\xbb\xbf1,a,true,1", b"1,a,true,1"])
@example([b"1,a,true,1"] * 40 + [b'1,"a'])
@settings(max_examples=80, deadline=None)
def test_no_body_changes_what_another_gives(bodies: list[bytes]) -> None:
    check(bodies)


def test_bad_bodies_are_named_with_the_reason_and_without_their_values() -> None:
    bodies = [b"", None, b"x,a,true,1", b"1,a", b"1,\xff,true,1", b"1,a,true,1\n2,b,true,2", b"\n"]
    rows, bad = rows_of([*bodies, b"7,a,true,1"])
    assert bad[0] == bad[1] == "empty"
    assert bad[2] == "field 'a' is no int64"
    assert bad[3] == "not one line of 4 fields"
    assert bad[4] == "field 's' is not UTF-8"
    assert bad[5].startswith("not one line")
    assert bad[6] == "begins with a line break"
    assert rows[7] == {"a": 7, "s": "a", "b": True, "d": 1.0}


def test_a_null_is_what_the_option_says_or_nothing_and_never_a_quoted_text() -> None:
    rows, bad = rows_of(
        [b'NULL,"NULL",NULL,NULL', b"1,NULL,true,1", b",,,", b'1,"",,', b'"",a,true,1'],
        null_value="NULL",
    )
    assert list(bad) == [4]
    assert [row["s"] for row in rows] == ["NULL", None, None, "", None]
    assert [row["d"] for row in rows] == [None, 1.0, None, None, None]


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        (rb'"a\"b"', 'a"b'),
        (rb'"a\\"', "a\\"),
        (rb'"a\b"', r"a\b"),
        (rb'"a\\\"b,c"', r"a\"b,c"),
        (rb"a\\b", r"a\\b"),
        (rb"a\"b", r"a\"b"),
        (b'"a""b"', 'a"b'),
        (b'"a" \t', "a"),
        (b' "a"', ' "a"'),
        (b'a"b', 'a"b'),
    ],
)
def test_quotes_and_backslashes_are_what_spark_makes_of_them(field: bytes, wanted: str) -> None:
    for neighbours in ([], [b"2,x,,"] * 3, [b'2,"x",,'] * 3):
        rows, bad = rows_of([*neighbours, b"1,%s,true,1" % field, *neighbours])
        assert not bad
        assert rows[len(neighbours)]["s"] == wanted


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'1,"a"b,true,1', "behind a closing quote"),
        (b'1,"a" b,true,1', "behind a closing quote"),
        (b'"1"2,a,true,1', "behind a closing quote"),
        (b'1,"a,true,1', "left open"),
        (rb'1,"a\",true,1', "left open"),
        (b'1,a\n"b",true,1', "line break"),
        (rb'1,"a\"b","""",1', "doubled quotes, and also backslashes"),
        (rb'1,"a\""b",true,1', "behind a closing quote"),
    ],
)
def test_a_body_whose_quotes_are_out_of_order_is_bad_and_says_why(body: bytes, why: str) -> None:
    rows, bad = rows_of([b'0,"a",true,1', body, b'2,"a",true,1'])
    assert list(bad) == [1]
    assert re.fullmatch(f"not one line of 4 fields: .*{why}.*", bad[1])
    assert [row["a"] for row in rows] == [0, None, 2]


@pytest.mark.parametrize("count", [0, 1, 16, 17])
def test_a_slice_gives_its_own_rows(count: int) -> None:
    bodies = pa.array([b"%d,a,true,1" % row for row in range(40)], pa.binary()).slice(3, count)
    read = CsvBodies(SCHEMA, NAME).read(bodies)
    assert read.columns[0].to_pylist() == list(range(3, 3 + count))


def judge(body: bytes, **how: Any) -> tuple[Verdict, bool]:
    """What the reader of single bodies thinks of it, and whether Arrow reads it alone."""
    refused, bodies = CsvBodies(SCHEMA, NAME, **how).prepared(pa.array([body], pa.binary()))
    if refused:
        return Verdict.BAD, False
    return bodies.verdict(0), not isinstance(bodies.columns(np.array([0])), str)


VALUES = st.sampled_from(
    [
        b"1", b"-1", b" 1 ", b"\t1", b"+1", b"007", b"-0", b"0x1f", b"-0x1f", b"0xFFFFFFFFFFFFFFFF",
        b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"1.0", b"1e5",
        b".5", b"5.", b"inf", b"+inf", b"NaN", b"nan(1)", b"1e999", b"1e-999", b"1_0", b"1d", b"0x",
        b"1\x0b", b"\xc2\xa01", b"\xff", b"\0", b"", b" ", b"true", b"True", b"tRue", b" true",
        b"FALSE", b"0", b"NULL", b"x", b"text", b"\xc3\xb6", b"\xef\xbb\xbf1", b"--1", b"1 2",
        b"infinity", b"-", b".", b"e", b"1.2.3", b"\r", b"\n", b"\r\n", b"\n\n",
    ]
)  # fmt: skip
QUOTED = st.sampled_from(
    [b"%s", b"%s", b'"%s"', b'"%s"x', b'"%s', b'%s"', b'"%s""', b'""%s', b'" %s"']
)
FIELD = st.builds(lambda value, form: form % value, VALUES, QUOTED)
LIKELY = st.tuples(VALUES, FIELD, st.sampled_from([b"true", b"FALSE", b'"true"']), VALUES)
LINES = st.one_of(
    LIKELY.map(b",".join),
    st.tuples(FIELD, FIELD, FIELD, FIELD).map(b",".join),
    st.lists(FIELD, max_size=6).map(b",".join),
    st.lists(FIELD, max_size=9).map(b"".join),
)


@given(LINES, st.sampled_from([b"", b"", b"\n", b"\r\n", b"\n1"]), st.sampled_from(["", "NULL"]))
@settings(max_examples=800, deadline=None)
def test_arrow_and_the_reader_of_single_bodies_agree(
    line: bytes, end: bytes, null_value: str
) -> None:
    judged, is_read = judge(line + end, null_value=null_value)
    assert judged is Verdict.UNSURE or is_read == (judged is Verdict.GOOD), line + end


GOOD_AT_A_GLANCE = [
    b"9223372036854775807,a,true,1.5", b",,,",
    b'"7","a,""b""\n","TRUE","-1.5e3"', b"1,\xc3\xb6,False,-2\r\n",
]  # fmt: skip
BAD_AT_A_GLANCE = [
    b"9223372036854775808,a,true,1", b"x,a,true,1", b"1,a,true", b"1,a,true,1,2", b'1,"a,true,1',
    b"1,a,yes,1", b"1,a,true,x", b"1,\xff,true,1", b"1,a,true,1\n2,a,true,2", b'1,a,true,"x"',
]  # fmt: skip


def test_a_glance_tells_good_bodies_from_bad_ones() -> None:
    bodies = pa.array([*GOOD_AT_A_GLANCE, *BAD_AT_A_GLANCE], pa.binary())
    _, found = CsvBodies(SCHEMA, NAME).prepared(bodies)
    wanted = [True] * len(GOOD_AT_A_GLANCE) + [False] * len(BAD_AT_A_GLANCE)
    assert found.looks_good(np.arange(len(bodies))).tolist() == wanted
    assert [body for body in GOOD_AT_A_GLANCE if not judge(body)[1]] == []
    assert [body for body in BAD_AT_A_GLANCE if judge(body)[1]] == []


@pytest.mark.parametrize("share", [1, 10, 100, 1000])
def test_bad_bodies_are_found_with_few_calls_of_the_parser(share: int) -> None:
    """A call takes as long as reading some hundred bodies."""
    bodies = [b"%d,order %d,true,1.5" % (row, row) for row in range(3_000)]
    for place, row in enumerate(range(0, len(bodies), share)):
        bodies[row] = BAD_AT_A_GLANCE[place % len(BAD_AT_A_GLANCE)]
    refused, found = CsvBodies(SCHEMA, NAME).prepared(pa.array(bodies, pa.binary()))
    counted = CountedBodies(found)
    read = read_bodies(SCHEMA, len(bodies), refused, counted)
    assert read.bad == list(range(0, len(bodies), share))
    assert counted.calls <= 2
    good = [row for row in range(len(bodies)) if row % share]
    assert [row for row in read.columns[0].to_pylist() if row is not None] == good


def test_a_chunk_behind_one_with_bad_bodies_is_read_alike() -> None:
    reader = CsvBodies(SCHEMA, NAME)
    for bad in ([3], [3, 999], [], [5], [], list(range(1_000))):
        bodies = [
            b"x,a,true,1" if row in bad else b"%d,order %d,true,1.5" % (row, row)
            for row in range(1_000)
        ]
        read = reader.read(pa.array(bodies, pa.binary()))
        assert read.bad == bad
        wanted = [None if row in bad else row for row in range(1_000)]
        assert read.columns[0].to_pylist() == wanted


def test_bodies_of_very_many_fields_are_judged_one_by_one() -> None:
    schema = pa.schema([(f"f{number}", pa.int64()) for number in range(300)])
    bodies = [b",".join([b"%d" % row] * 300) for row in range(250)]
    bodies[7] = b"x"
    read = CsvBodies(schema, NAME).read(pa.array(bodies, pa.binary()))
    assert read.bad == [7]
    assert read.columns[299].to_pylist() == [*range(7), None, *range(8, 250)]
