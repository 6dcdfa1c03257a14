"""A CSV body gives the row that reading it alone gives, whatever stands in the others."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketmq_arrow.csv_bodies import CsvBodies

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
    return batch.to_pylist(), read.bad


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


def test_a_null_is_what_the_option_says_and_never_a_quoted_text() -> None:
    rows, bad = rows_of(
        [b'NULL,"NULL",NULL,NULL', b"1,NULL,true,1", b",a,true,1"], null_value="NULL"
    )
    assert list(bad) == [2]
    assert [row["s"] for row in rows] == ["NULL", None, None]


@pytest.mark.parametrize("count", [0, 1, 16, 17])
def test_a_slice_gives_its_own_rows(count: int) -> None:
    bodies = pa.array([b"%d,a,true,1" % row for row in range(40)], pa.binary()).slice(3, count)
    read = CsvBodies(SCHEMA, NAME).read(bodies)
    assert read.columns[0].to_pylist() == list(range(3, 3 + count))
