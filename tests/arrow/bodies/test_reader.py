"""A JSON body gives the row that reading it alone gives, whatever stands in the others."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rocketmq_arrow.bodies.reader import JsonBodies, read_bodies
from rocketmq_arrow.bodies.validation import Validity

NAME = "5f0c6d1e2a3b4c5d"
SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("t", pa.int8()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("l", pa.list_(pa.int32())),
        ("o", pa.struct([("x", pa.int16()), ("s", pa.string())])),
    ]
)
BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


class Bad(Exception):
    """A body that a reader of one body at a time refuses."""


class Number(str):
    """A number as it is written."""


class Members(list[tuple[str, Any]]):
    """The members of an object, in their order."""


def alone(body: bytes, schema: pa.Schema = SCHEMA) -> dict[str, Any] | None:
    """The row of one body, by Python's own reader; None when it is bad."""
    try:
        text = body.decode()
        found = json.loads(text, object_pairs_hook=Members, parse_int=Number, parse_float=Number)
        text_again = json.dumps(found, ensure_ascii=False)
        text_again.encode()  # No halves of surrogate pairs.
        if not isinstance(found, Members):
            return None
        return struct_of(found, list(schema))
    except (ValueError, Bad, RecursionError):
        return None


def struct_of(members: Members, fields: list[pa.Field]) -> dict[str, Any]:
    row: dict[str, Any] = {field.name: None for field in fields}
    kinds = {field.name: field.type for field in fields}
    seen = set()
    for name, value in members:
        if name in kinds:
            if name in seen:
                raise Bad
            seen.add(name)
            row[name] = value_of(value, kinds[name])
    return row


def value_of(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if isinstance(value, Members):
        if pa.types.is_struct(kind):
            return struct_of(value, list(kind))
    elif isinstance(value, list):
        if pa.types.is_list(kind):
            return [value_of(item, kind.value_type) for item in value]
    elif isinstance(value, bool):
        if pa.types.is_boolean(kind):
            return value
    elif isinstance(value, Number):
        if kind in BITS and re.fullmatch(r"-?\d+", value):
            number, limit = int(value), 1 << (BITS[kind] - 1)
            if -limit <= number < limit:
                return number
        elif pa.types.is_floating(kind):
            return float(value)
    elif isinstance(value, str) and pa.types.is_string(kind):
        return value
    raise Bad


def check(bodies: list[bytes]) -> None:
    read = JsonBodies(SCHEMA, NAME).read(pa.array(bodies, pa.binary()))
    for column, field in zip(read.columns, SCHEMA, strict=True):
        column.validate(full=True)
        assert column.type == field.type
    rows = pa.table(read.columns, schema=SCHEMA).to_pylist()
    assert len(rows) == len(bodies)
    expected = [alone(body) for body in bodies]
    nothing = dict.fromkeys(SCHEMA.names)
    assert [row not in read.bad for row in range(len(rows))] == [
        row is not None for row in expected
    ]
    assert rows == [nothing if row is None else row for row in expected]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.integers(-200, 200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "s", "a", "zz"]), inner, max_size=3)
    ),
    max_leaves=6,
)
WANTED = {
    "a": st.integers(-(2**63), 2**63 - 1),
    "t": st.integers(-128, 127),
    "d": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70),
    "s": st.text(max_size=12),
    "b": st.booleans(),
    "l": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4),
    "o": st.fixed_dictionaries(
        {}, optional={"x": st.none() | st.integers(-9, 9), "s": st.text(max_size=5), "y": TREES}
    ),
    "more": TREES,
}
FITTING = st.fixed_dictionaries({}, optional={n: st.none() | v for n, v in WANTED.items()})
ANY = st.dictionaries(st.sampled_from([*WANTED, "é", ""]), TREES, max_size=5)


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """An object as a person might write it."""
    value = draw(FITTING | FITTING | ANY)
    text = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, None, 1])),
        separators=draw(st.sampled_from([None, (",", ":"), (" ,\n", "\t: ")])),
    )
    around = st.sampled_from(["", "", " ", "\n", "\r\n\t"])
    return (draw(around) + text + draw(around)).encode("utf-8", "surrogatepass")


ODD_PIECES = st.sampled_from(
    [
        b"\n", b"\0", b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\xff", b"\xc3", b"\xa9",
        b"{}", b'{"a":1}', b'"a":1,', b',"a":2', b"null", b"1", b"-", b".5", b"e5", b"1e999", b"\r",
        b"\\ud800", b"\\udc00", b"\\u0000", b"// x", b"\xef\xbb\xbf", b"\x1f", b"\x0b", b"'",
        b"}\n{", b'}],"w":[{', b'"\n"', b"\xed\xa0\x80",
    ]
)  # fmt: skip


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    body = bytearray(draw(written()))
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(body)))
        body[position : position + draw(st.integers(0, 2))] = draw(ODD_PIECES)
    return bytes(body)


@st.composite
def body_lists(draw: st.DrawFn) -> list[bytes]:
    bodies = draw(st.lists(written(), max_size=12))
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, len(bodies)))
        bodies.insert(position, draw(hostile() | st.binary(max_size=4)))
    is_moved: bool = draw(st.booleans())
    if bodies and is_moved:
        # One text over two messages, or two texts in one.
        position = draw(st.integers(0, len(bodies) - 1))
        whole = bodies[position]
        is_cut: bool = draw(st.booleans())
        if is_cut:
            cut = draw(st.integers(0, len(whole)))
            bodies[position : position + 1] = [whole[:cut], whole[cut:]]
        else:
            bodies[position] = whole + draw(st.sampled_from([b"", b"\n", b" ", b","])) + whole
    return bodies


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(body_lists())
@example([])
@example([b"{}"])
@example([b'{"s": "\\udc00"}', b'{"s": "\\ud800\\ud800"}', b'{"more": "\\udc00"}'])
@example([b'{"a":null,"a":1}', b'{"a":1,"\\u0061":1}', b'{"more":1,"more":2}'])
@example([b'{"s":"torn', b'"}', b'{"s":"x"}'])
@example([b'{"a":1}', b"", b" ", b'{"a":2}'])
def test_each_body_is_read_as_if_it_were_alone(bodies: list[bytes]) -> None:
    check(bodies)


def test_a_few_bad_bodies_among_many_are_found_and_no_row_is_moved() -> None:
    bodies = [b'{"a":%d,"s":"order %d"}' % (row, row) for row in range(3_000)]
    bodies[7] = b'{"a":7'
    bodies[8] = b',"s":"order 8"}'
    bodies[1_500] = bodies[1_500] + bodies[1_500]
    bodies[2_999] = b'{"a":"2999"}'
    check(bodies)


def test_all_bodies_may_be_bad() -> None:
    check([b"no JSON at all"] * 40)
    check([b'{"a":"x"}'] * 40)


@pytest.mark.parametrize("number", ["1e309", "2e308", "-1e400"])
def test_a_number_beyond_a_double_is_never_a_finite_one(number: str) -> None:
    read = JsonBodies(SCHEMA, NAME).read(pa.array([b'{"d":%s}' % number.encode()], pa.binary()))
    assert 0 in read.bad or read.columns[2][0].as_py() in (float("inf"), float("-inf"))


def test_what_is_no_number_may_be_written_as_spark_reads_it() -> None:
    bodies = pa.array([b'{"d":NaN}', b'{"d":-Infinity}', b'{"a":NaN}'], pa.binary())
    read = JsonBodies(SCHEMA, NAME).read(bodies)
    assert str(read.columns[2].to_pylist()) == "[nan, -inf, None]"
    assert read.bad == [2]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[1]", "not one JSON object"),
        (b'{"s":"\xff"}', "not UTF-8"),
        (b'{"a":1}{"a":2}', "not one JSON object"),
        (b'{"a":"1"}', "field 'a' is of type string, not number"),
        (b'{"a":1,"a":2}', "field 'a' is named twice"),
        (b'{"t":128}', "a value is no int8"),
        (b'{"a":1', "not one JSON object: missing a comma or '}' after an object member"),
    ],
)
def test_the_reason_of_a_bad_body_names_no_values(body: bytes, reason: str) -> None:
    read = JsonBodies(SCHEMA, NAME).read(pa.array([b"{}", body, b"{}"], pa.binary()))
    assert [(row, read.why(row)) for row in read.bad] == [(1, reason)]


VALIDITIES = {
    b'{"d":-NaN}': Validity.UNSURE,
    b'{"d":Inf,"a":"x"}': Validity.UNSURE,
    b'{"d":NaN,"a":"x"}': Validity.BAD,
    b'{"d":1e999}': Validity.UNSURE,
    b'{"more":%s1%s}' % (b"[" * 100_000, b"]" * 100_000): Validity.UNSURE,
    b'{"more":%s}' % (b"1" * 5_000): Validity.UNSURE,
    b'{"more":"\\ud83d\\ude00","s":"\\\\ud800"}': Validity.UNSURE,
    b'{"more":"\\ud83d\\ude00"}': Validity.GOOD,
    b'{"more":"\\ude00"}': Validity.UNSURE,
    b'{"a":-9223372036854775808,"t":-128,"o":{"x":-32768}}': Validity.GOOD,
    b'{"a":9223372036854775808}': Validity.BAD,
    b'{"a":-0,"d":-0}': Validity.GOOD,
    b'{"a":1.0}': Validity.BAD,
    b'{"a":true}': Validity.BAD,
    b'{"b":1}': Validity.BAD,
    b'{"o":{"x":1,"x":null}}': Validity.BAD,
    b'{"o":[]}': Validity.BAD,
    b'{"l":[1,"2"]}': Validity.BAD,
    b'{"l":[[1]]}': Validity.BAD,
    b'{"s":"a\tb"}': Validity.BAD,
    b'{"a":01}': Validity.BAD,
    b'{"a":1}\n{"a":2}': Validity.BAD,
}


def judge(body: bytes) -> tuple[Validity, bool]:
    """What the reader of single bodies thinks of it, and whether Arrow reads it alone."""
    refused, bodies = JsonBodies(SCHEMA, NAME).prepared(pa.array([body], pa.binary()))
    if refused:
        return Validity.BAD, False
    return bodies.validity(0), not isinstance(bodies.columns(np.array([0])), str)


@pytest.mark.parametrize(
    ("body", "validity"), VALIDITIES.items(), ids=lambda value: str(value)[:40]
)
def test_a_body_alone_is_judged_without_arrow(body: bytes, validity: Validity) -> None:
    judged, is_read = judge(body)
    assert judged is validity
    assert validity is Validity.UNSURE or is_read == (validity is Validity.GOOD)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(written() | hostile())
def test_arrow_and_the_reader_of_single_bodies_agree(body: bytes) -> None:
    judged, is_read = judge(body)
    assert judged is Validity.UNSURE or is_read == (judged is Validity.GOOD), body


GOOD_AT_A_GLANCE = [
    b'{"a":9223372036854775807,"t":-127,"d":-1.5e-10,"l":[1, null]}',
    b'{"s":"\xc3\xb6 \\n\\u00f6","b":true}', b'{ }',
    b'{\n  "o": {"x": 1, "y": [null, 2]},\n  "more": {"a": ["x", 1]}, "": 1\n}\r\n',
    b'{"aa":"x","":{},"ab":[],"more":"\\ud83d\\ude00","b":null}',
]  # fmt: skip
BAD_AT_A_GLANCE = [
    b'{"a":9223372036854775808}', b'{"t":128}', b'{"a":"1"}', b'{"a":1.0}', b'{"a":1', b'{"a":1,}',
    b'{"a":1,', b'{"a":1}{"a":2}', b'{"s":"a\nb"}', b'{"s":1}', b'{"b":0}', b'{"l":1}',
    b'{"o":{"x":"1"}}', b'{"more":"\\ud800"}', b'{"more":nothing}', b"{'a':1}",
    b'{"l":["1"]}', b'{"d":"1"}',
]  # fmt: skip


def test_a_glance_tells_good_bodies_from_bad_ones() -> None:
    bodies = pa.array([*GOOD_AT_A_GLANCE, *BAD_AT_A_GLANCE], pa.binary())
    _, found = JsonBodies(SCHEMA, NAME).prepared(bodies)
    wanted = [True] * len(GOOD_AT_A_GLANCE) + [False] * len(BAD_AT_A_GLANCE)
    assert found.seem_valid(np.arange(len(bodies))).tolist() == wanted
    check([*GOOD_AT_A_GLANCE, *BAD_AT_A_GLANCE])


@pytest.mark.parametrize("share", [1, 10, 100, 1000])
def test_bad_bodies_are_found_with_few_calls_of_the_parser(
    share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call takes as long as reading a hundred bodies."""
    bodies = [b'{"a":%d,"s":"order %d"}' % (row, row) for row in range(3_000)]
    for position, row in enumerate(range(0, len(bodies), share)):
        bodies[row] = BAD_AT_A_GLANCE[position % len(BAD_AT_A_GLANCE)]
    refused, found = JsonBodies(SCHEMA, NAME).prepared(pa.array(bodies, pa.binary()))
    parse = pj.read_json
    calls: list[Any] = []

    def counting(*arguments: Any) -> pa.Table:
        calls.append(arguments)
        return parse(*arguments)

    monkeypatch.setattr(pj, "read_json", counting)
    read = read_bodies(SCHEMA, refused, found)
    assert read.bad == list(range(0, len(bodies), share))
    # The whole, what is in doubt in ever smaller parts, and the rest.
    assert len(calls) <= 2 + 2 * sum(body == b'{"more":"\\ud800"}' for body in bodies)


def test_bad_bodies_that_look_good_are_found_too() -> None:
    bodies = [b'{"a":%d,"s":"order %d"}' % (row, row) for row in range(1_000)]
    bodies[10] = b'{"a":1,"a":2}'
    bodies[500] = b'{"more":[1,,2]}'
    bodies[501] = b'{"more":[1 2]}'
    check(bodies)


def test_bodies_of_white_space_within_braces_do_not_trouble_the_others() -> None:
    bodies = [b"{ }", b"{\n}", b'{ "a":1}', b'{\n\t"a":2\n}', b"{ ", b"}"]
    refused, found = JsonBodies(SCHEMA, NAME).prepared(pa.array(bodies, pa.binary()))
    assert list(refused) == [5]
    assert not isinstance(found.columns(np.arange(4)), str)
    check(bodies)


def test_a_chunk_behind_one_with_bad_bodies_is_read_the_same() -> None:
    reader = JsonBodies(SCHEMA, NAME)
    for bad in ([3], [3, 999], [], [5], [], list(range(1_000))):
        bodies = [b'{"a":"x"}' if row in bad else b'{"a":%d}' % row for row in range(1_000)]
        read = reader.read(pa.array(bodies, pa.binary()))
        assert read.bad == bad
        wanted = [None if row in bad else row for row in range(1_000)]
        assert read.columns[0].to_pylist() == wanted


def test_bodies_of_very_many_fields_are_judged_one_by_one() -> None:
    schema = pa.schema([(f"f{number}", pa.int64()) for number in range(300)])
    bodies = [b"{%s}" % b",".join(b'"f%d":%d' % (i, row) for i in range(300)) for row in range(250)]
    bodies[7] = b'{"f0":"x"}'
    read = JsonBodies(schema, NAME).read(pa.array(bodies, pa.binary()))
    assert read.bad == [7]
    assert read.columns[299].to_pylist() == [*range(7), None, *range(8, 250)]
