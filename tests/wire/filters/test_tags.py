"""Tag expressions and Java's string hash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import LocalProtocolError
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.hashes import java_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("中文", 646394),
        ("😀x", 54959989),
        ("order-42", 1234255197),
        ("g1", 3242),
        ("-neg", 1449539),
        ("", 0),
        ("\ud800", 0xD800),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_hash_is_javas(text: str, expected: int):
    assert java_hash(text) == expected


@given(st.text(st.characters(), max_size=30))
def test_hash_is_a_signed_32_bit_number_over_utf16_units(text: str):
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    total = sum(unit * 31 ** (len(units) - 1 - index) for index, unit in enumerate(units))
    assert -(2**31) <= java_hash(text) < 2**31
    assert (java_hash(text) - total) % 2**32 == 0


@pytest.mark.parametrize("text", [None, "", "*", " * ", "  "])
def test_nothing_or_a_star_matches_everything(text: str | None):
    expression = TagExpression.parse(text)
    assert expression.matches_all
    assert expression.matches(None)
    assert expression.matches("any")
    assert expression.hashes == ()


def test_tags_are_split_trimmed_and_counted_once():
    expression = TagExpression.parse(" TagA ||TagB|| || TagA")
    assert expression.tags == frozenset({"TagA", "TagB"})
    assert expression.hashes == (2598919, 2598920)
    assert not expression.matches_all


def test_a_colliding_hash_is_no_match():
    assert java_hash("Aa") == java_hash("BB")
    expression = TagExpression.parse("Aa")
    assert expression.matches("Aa")
    assert not expression.matches("BB")
    assert not expression.matches(None)


def test_a_single_bar_belongs_to_the_tag():
    assert TagExpression.parse("a|b").tags == frozenset({"a|b"})


@pytest.mark.parametrize("text", ["||", " || ", "||||"])
def test_an_expression_that_names_no_tag_is_refused(text: str):
    with pytest.raises(LocalProtocolError, match="names no tag"):
        TagExpression.parse(text)
