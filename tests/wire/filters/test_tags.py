"""Tag expressions and Java's string hash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import LocalProtocolError
from rocketmq_wire.filters.tags import TagExpression, sent_tag_problem, separator_problem
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


@pytest.mark.parametrize("text", ["a | b", "a, b", "a OR b", "a or b", "a || b, c", "a |"])
def test_what_else_people_join_tags_by_is_a_problem(text: str) -> None:
    meant = [name for name in "abc" if name in text]
    assert f"write {' || '.join(meant)!r}" in str(separator_problem(text))


@pytest.mark.parametrize("text", ["a", "*", "a || b", "a||b", "order paid", "a || a", "a ||"])
def test_tags_joined_by_bars_are_no_problem(text: str) -> None:
    assert separator_problem(text) is None


def test_an_expression_without_a_tag_is_a_problem() -> None:
    assert separator_problem("||") == "must name a tag, or * for every message"


@pytest.mark.parametrize("text", ["paid && new", "paid &&", "paid AND new", "a || b and c"])
def test_a_message_has_no_two_tags(text: str) -> None:
    assert "a message has one tag" in str(separator_problem(text))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("pai*", "not 'pai*': SQL92 selects by a part, as in TAGS STARTSWITH 'pai'"),
        ("*aid", "as in TAGS ENDSWITH 'aid'"),
        ("a || *b*", "as in TAGS CONTAINS 'b'"),
        ("a || *", "must be * alone for every message"),
    ],
)
def test_a_star_within_an_expression_is_a_problem(text: str, advice: str) -> None:
    assert advice in str(separator_problem(text))


@pytest.mark.parametrize("tag", [None, "", "a", "a|b", "order paid"])
def test_a_tag_that_an_expression_can_name_is_no_problem(tag: str | None) -> None:
    assert sent_tag_problem(tag) is None


def test_a_sent_tag_with_bars_is_a_problem() -> None:
    assert str(sent_tag_problem("a||b")).startswith("'a||b' has ||, which joins tags")
