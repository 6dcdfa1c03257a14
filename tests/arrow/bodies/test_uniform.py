"""Uniform bodies give the values of Arrow's parser, or are left to it."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketmq_arrow.bodies.reader import JsonBodies, ReadBodies, read_bodies
from rocketmq_arrow.bodies.uniform import UniformBodies

NAME = "5f0c6d1e2a3b4c5d"
SCHEMA = pa.schema(
    [
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("li", pa.list_(pa.field("element", pa.int32()))),
        ("ld", pa.list_(pa.float64())),
        ("lb", pa.list_(pa.bool_())),
        ("ls", pa.list_(pa.string())),
        ("o", pa.struct([("x", pa.int16()), ("s", pa.string()), ("l", pa.list_(pa.int8()))])),
    ]
)


def parsed(bodies: pa.BinaryArray, schema: pa.Schema = SCHEMA) -> ReadBodies:
    """What Arrow's parser alone makes of bodies."""
    refused, objects = JsonBodies(schema, NAME).prepared(bodies)
    return read_bodies(schema, refused, objects)


def read(
    uniform: UniformBodies, bodies: pa.BinaryArray, schema: pa.Schema = SCHEMA
) -> tuple[ReadBodies, int]:
    """The columns with uniform bodies read as such, and the number of those."""
    refused, objects = JsonBodies(schema, NAME).prepared(bodies)
    known = uniform.read(objects.data, objects.starts, objects.ends, refused)
    count = sum(len(part.rows) for part in known)
    return read_bodies(schema, refused, objects, known), count


def check(uniform: UniformBodies, bodies: pa.BinaryArray, schema: pa.Schema = SCHEMA) -> int:
    """Compare both; return the number of uniform bodies."""
    wanted = parsed(bodies, schema)
    found, count = read(uniform, bodies, schema)
    assert found.bad == wanted.bad
    assert [found.why(row) for row in found.bad] == [wanted.why(row) for row in wanted.bad]
    for name, ours, theirs in zip(schema.names, found.columns, wanted.columns, strict=True):
        ours.validate(full=True)
        assert ours.type == theirs.type
        # As texts, as -0.0 equals 0.0.
        assert repr(ours.to_pylist()) == repr(theirs.to_pylist()), name
    return count


def array_of(bodies: list[bytes | None]) -> pa.BinaryArray:
    return pa.array(bodies, pa.binary())


def integers(bits: int) -> st.SearchStrategy[int]:
    limit = 1 << (bits - 1)
    near = st.sampled_from([-limit - 1, -limit, 1 - limit, limit - 1, limit, limit * 10])
    return st.integers(-limit, limit - 1) | st.integers(-20, 20) | near


FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30)
SMALL_FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
PLAIN_TEXTS = st.text("ab {}[]:,1", max_size=9)
TEXTS = (
    PLAIN_TEXTS
    | PLAIN_TEXTS
    | st.text(max_size=9)
    | st.sampled_from(["", '"', "\\", "{}", '":', "é", "x" * 70, "\x7f"])
)
OTHERS = st.none() | st.booleans() | FLOATS | TEXTS
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i8": integers(8),
    "i16": integers(16),
    "i32": integers(32),
    "i64": integers(64),
    "f": SMALL_FLOATS,
    "d": FLOATS,
    "s": TEXTS,
    "b": st.booleans(),
    "li": st.lists(st.integers(-9, 99) | integers(32), max_size=4),
    "ld": st.lists(FLOATS, max_size=3),
    "lb": st.lists(st.booleans(), max_size=3),
    "ls": st.lists(TEXTS, min_size=2, max_size=2),
    "o": st.fixed_dictionaries({"x": integers(16), "s": TEXTS, "l": st.lists(integers(8))}),
    "more": FLOATS,
    "text": TEXTS,
    "flag": st.booleans(),
    "some": st.lists(st.integers() | st.booleans(), max_size=3),
    "tree": st.fixed_dictionaries({"i8": OTHERS, "": st.fixed_dictionaries({"o": TEXTS})}),
}
PIECES = [
    b"\n", b"\0", b"{", b"}", b"[", b"]", b'"', b'""', b",", b", ", b":", b"\\", b"\xff", b"\xc3",
    b'"a":1,', b"null", b"true", b"1", b"0", b"-", b".", b"e5", b"E+400", b"\r", b" ", b"  ",
    b"\\u0041", b"\x1f", b'"}{"', b"99999999999999999999", b"9", b'", "s": "', b"NaN", b"+", b"x",
]  # fmt: skip


@st.composite
def chunks(draw: st.DrawFn) -> pa.BinaryArray:
    """Bodies of one program, and some that are not quite so."""
    names = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=7, unique=True))
    style: dict[str, Any] = {
        "ensure_ascii": draw(st.sampled_from([False, False, True])),
        "separators": draw(st.sampled_from([None, None, (",", ":"), (" ,\n", "\t: ")])),
        "indent": draw(st.sampled_from([None, None, None, 1])),
    }
    around = [draw(st.sampled_from([b"", b"", b" ", b"\n"])) for _ in range(2)]
    bodies: list[bytes | None] = []
    for _ in range(draw(st.integers(4, 24))):
        order = {name: draw(VALUES[name]) for name in names}
        if draw(st.integers(0, 15)) == 0:
            order[draw(st.sampled_from(names))] = draw(OTHERS)
        if draw(st.integers(0, 19)) == 0:
            order.pop(draw(st.sampled_from(names)))
        text = json.dumps(order, **style)
        bodies.append(around[0] + text.encode("utf-8", "surrogatepass") + around[1])
    for _ in range(draw(st.integers(0, 4))):
        row = draw(st.integers(0, len(bodies) - 1))
        body = bytearray(bodies[row] or b"{}")
        position = draw(st.integers(0, len(body)))
        body[position : position + draw(st.integers(0, 3))] = draw(st.sampled_from(PIECES))
        bodies[row] = bytes(body)
    if draw(st.integers(0, 3)) == 0:
        row = draw(st.integers(0, len(bodies) - 1))
        cut = draw(st.integers(0, len(bodies[row] or b"")))
        body = bytearray(bodies[row] or b"")
        bodies[row : row + 1] = [bytes(body[:cut]), None, bytes(body[cut:])]
    return array_of(bodies).slice(draw(st.integers(0, 2)))


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.lists(chunks(), min_size=1, max_size=3))
def test_uniform_bodies_are_read_as_the_parser_reads_them(found: list[pa.BinaryArray]) -> None:
    uniform = UniformBodies(SCHEMA, rows_min=1)
    for bodies in found:
        check(uniform, bodies)


QUOTE = ord('"')
SLOTS = {
    "i8": b"7", "i16": b"-7", "i32": b"0", "i64": b"12", "f": b"1.5", "d": b"-2.25", "b": b"true",
    "li": b"[1, 2]", "ld": b"[1.5]", "lb": b"[true]", "s": b'"x"', "ls": b'["a", "b"]',
    "more": b"17", "some": b"[1, true]", "o": b'{"x": 1, "s": "", "l": [3]}',
}  # fmt: skip
ODD_VALUES = [
    b"0", b"-0", b"00", b"01", b"-01", b"-", b"--1", b"+1", b"1-", b"1.", b".1", b"-.1", b"1..2",
    b"1.0", b"0.0", b"-0.0", b"00.1", b"0x1F", b"0x", b"1e5", b"1E+5", b"1e-5", b"1e", b"1e5.5",
    b"1e308", b"1e309", b"1e999", b"-1e999", b"1e-999", b"3.4e38", b"3.5e38", b"1e38", b"1e39",
    b"127", b"128", b"-128", b"-129", b"32767", b"32768", b"-32768", b"-32769", b"2147483647",
    b"2147483648", b"-2147483648", b"-2147483649", b"9223372036854775807", b"9223372036854775808",
    b"8999999999999999999", b"-9223372036854775808", b"-9223372036854775809", b"9" * 18, b"9" * 30,
    b"1" * 400, b"0." + b"1" * 400, b"0.1234567890123456", b"123456789012345678901234.56789",
    b"16777217", b"16777217.0", b"0.100000001490116119384765625", b"null", b"nul", b"Null",
    b"0." + b"0" * 400 + b"1", b"0." + b"0" * 95 + b"1e-99", b"0." + b"0" * 44 + b"1", b"nulll",
    b"true", b"false", b"falsy", b"True", b"trueish", b"NaN", b"-NaN", b"Infinity", b"-Infinity",
    b"Inf", b"inf", b"1 ", b" 1", b"1\n", b"1 1", b"1,2", b"1,", b",", b"", b" ", b'"1"', b'""',
    b"1a", b"a", b"1_0", b"1\xc2\xa0", b"\xd9\xa1", b"1\\", b"[]", b"[1]", b"[1,2]", b"[1, 2, 3]",
    b"[1,  2]", b"[1,23]", b"[1,x2]", b"[1 , 2]", b"[ 1]", b"[1 ]", b"[1,]", b"[, 1]",
    b"[,]", b"[, ]", b"[1, , 2]",
    b"[null]", b"[null, 1]", b"[1, null, 3]", b"[true, false]", b"[1], [2]", b"[[1]]", b'["a"]',
    b'["a", "b"]', b'["a","b"]', b'["a", "b", "c"]', b'["a", null]', b"[2147483648]", b"[1.5, 2]",
    b"[01]", b"[-]", b"{}", b'{"x": 2}', b'{"x": 2, "s": "a", "l": []}', b"// x", b'1, "i8": 2',
    b'"a\\"b"', b'"\\u0041"', b'"a\tb"', b'"{}"', b'"}"', b'"a": 1', '"é€😀"'.encode(), b"'a'",
]  # fmt: skip


def body_of(**other: bytes) -> bytes:
    slots = SLOTS | other
    return b"{%s}" % b", ".join(b'"%s": %s' % (n.encode(), v) for n, v in slots.items())


@pytest.mark.parametrize("name", SLOTS)
def test_odd_values_are_read_as_the_parser_reads_them(name: str) -> None:
    bodies: list[bytes | None] = []
    for value in ODD_VALUES:
        bodies += [body_of(), body_of(**{name: value})]
    count = check(UniformBodies(SCHEMA, rows_min=1), array_of(bodies))
    assert count >= len(ODD_VALUES)


def test_every_small_change_of_a_body_is_read_as_the_parser_reads_it() -> None:
    schema = pa.schema([SCHEMA.field(name) for name in ("i8", "d", "s", "b", "li")])
    body = b'{"i8": 12, "s": "a", "more": -1, "d": 1.5, "li": [1, 20], "b": true, "text": ""}'
    changed = [body[:position] for position in range(len(body))]
    for position in range(len(body) + 1):
        for piece in (*PIECES, b""):
            changed += [body[:position] + piece + body[position + size :] for size in (0, 1)]
    bodies: list[bytes | None] = [*changed, *[body] * len(changed)]
    random.Random(7).shuffle(bodies)
    for part in range(4):
        check(UniformBodies(schema, rows_min=1), array_of(bodies[part::4]), schema)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" , ", " : ")])
def test_torn_and_hollow_bodies_at_both_ends_are_left_to_the_parser(
    separators: tuple[str, str],
) -> None:
    schema = pa.schema([SCHEMA.field(name) for name in ("i8", "s", "b", "li")])
    order = {"i8": 12, "s": "a", "more": 1, "li": [1], "b": True}
    body = json.dumps(order, separators=separators).encode()
    others = [body[:cut] for cut in range(len(body))] + [body[cut:] for cut in range(len(body))]
    for value in (b"12", b'"a"', b"1", b"[1]", b"true"):
        others += [body.replace(value, b""), body.replace(value, b"", 1)]
        # So short that texts would overlap.
        others += [body.replace(b" %s " % value, space) for space in (b"", b" ", b"  ")]
    for other in others:
        bodies = array_of([other, *[body] * 9, other])
        assert check(UniformBodies(schema, rows_min=1), bodies, schema) >= 9


@pytest.mark.parametrize("body", [b'{"i8":7,"s":"ab"}', b'{"s":"ab","i8":7}'])
def test_a_quote_too_many_is_not_set_off_by_a_body_with_one_less(body: bytes) -> None:
    schema = pa.schema([SCHEMA.field("s"), SCHEMA.field("i8")])
    more = [body[:position] + b'"' + body[position:] for position in range(len(body) + 1)]
    less = [
        body[:position] + body[position + 1 :]
        for position, byte in enumerate(body)
        if byte == QUOTE
    ]
    for one in more:
        for other in less:
            for pair in ([one, other], [other, one]):
                bodies = array_of([*[body] * 4, *pair, *[body] * 4])
                check(UniformBodies(schema, rows_min=1), bodies, schema)


@pytest.mark.parametrize("name", ["i64", "f", "d", "b", "s", "li", "ls", "more", "some", "o"])
def test_each_odd_value_alone_gives_its_shape(name: str) -> None:
    schema = pa.schema([SCHEMA.field(name if name in SCHEMA.names else "s")])
    for value in ODD_VALUES:
        bodies: list[bytes | None] = [b'{"%s": %s}' % (name.encode(), value)] * 9
        check(UniformBodies(schema, rows_min=1), array_of([*bodies, b"{}", b""]), schema)


def test_floats_are_the_same_to_the_last_bit() -> None:
    seed = time.time_ns()
    print(f"{seed=}")
    source = random.Random(seed)
    bodies: list[bytes | None] = []
    for _ in range(4_000):
        wide = source.choice([1, 1e3, 1e-3, 1e12, 1e-12, 1e22]) * source.uniform(-1, 1)
        digits = source.randrange(1, 24)
        text = source.choice([repr(wide), f"{wide:.{digits}f}", f"{wide:.{digits}e}"])
        bodies.append(b'{"f":%s,"d":%s,"ld":[%s]}' % ((text.encode(),) * 3))
    assert check(UniformBodies(SCHEMA, rows_min=1), array_of(bodies)) > 2_000


def test_nulls_within_slots_are_no_other_shape() -> None:
    bodies: list[bytes | None] = []
    for row in range(60):
        slots = {n: v for n, v in SLOTS.items() if n not in ("s", "ls", "li", "ld", "lb", "o")}
        name = list(slots)[row % len(slots)]
        bodies.append(body_of(**{name: b"null", "li": b"[null, 3]", "lb": b"[]"}))
    # Nobody wants the list, so that its null is none of its values.
    bodies = [body.replace(b'"some": null', b'"some": []') for body in bodies if body]
    assert check(UniformBodies(SCHEMA, rows_min=1), array_of(bodies)) == len(bodies)


def test_strings_that_are_null_at_times_make_a_second_shape() -> None:
    bodies: list[bytes | None] = [
        body_of(s=b"null" if row % 3 == 0 else b'"a"', i8=b"%d" % row) for row in range(120)
    ]
    uniform = UniformBodies(SCHEMA, rows_min=1)
    for _ in range(2):
        assert check(uniform, array_of(bodies)) == 120


def test_bodies_that_change_are_learned_again() -> None:
    uniform = UniformBodies(SCHEMA, rows_min=1)
    for field in ("i8", "i16", "i32", "i64", "d", "f"):
        bodies: list[bytes | None] = [b'{"%s": %d}' % (field.encode(), row) for row in range(50)]
        counts = [check(uniform, array_of(bodies)) for _ in range(3)]
        assert counts[1:] == [50, 50]


def test_unlike_bodies_are_seldom_looked_at() -> None:
    source = random.Random(5)
    names = [f"field{number}" for number in range(12)]
    bodies: list[bytes | None] = []
    for row in range(600):
        source.shuffle(names)
        bodies.append(json.dumps(dict.fromkeys(names, row)).encode())
    uniform = UniformBodies(SCHEMA, rows_min=1)
    pauses = []
    for _ in range(40):
        assert check(uniform, array_of(bodies)) == 0
        pauses.append(uniform.attempts.pause)
    assert pauses[:8] == [1, 0, 3, 2, 1, 0, 7, 6]


def test_structs_may_be_empty() -> None:
    schema = pa.schema([("o", pa.struct([])), ("p", pa.struct([("x", pa.int8())]))])
    for struct in (b"{}", b"{ }", b'{"y": 1}', b"null"):
        bodies: list[bytes | None] = [b'{"o": %s, "p": %s, "i": 1}' % (struct, struct)] * 30
        assert check(UniformBodies(schema, rows_min=1), array_of(bodies), schema) == 30


def test_few_bodies_are_left_to_the_parser() -> None:
    bodies = array_of([body_of()] * 10)
    assert check(UniformBodies(SCHEMA), bodies) == 0
    assert not UniformBodies(SCHEMA, rows_min=1).read(
        np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64), {}
    )


def test_many_bodies_are_read_the_same_by_their_reader() -> None:
    reader = JsonBodies(SCHEMA, NAME)
    bodies: list[bytes | None] = [body_of(i64=b"%d" % row) for row in range(3_000)]
    bodies[7] = body_of(i64=b'"x"')
    bodies[8] = None
    for _ in range(2):
        found = reader.read(array_of(bodies))
        assert found.bad == [7, 8]
        assert found.why(7) == "field 'i64' is of type string, not number"
        wanted = [None if row in (7, 8) else row for row in range(3_000)]
        assert found.columns[3].to_pylist() == wanted
