"""SQL92 expressions: every row of the dialect's table, and each oddity by name."""

from __future__ import annotations

import itertools
import math
import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import EvaluationError, SqlSyntaxError
from rocketmq_wire.filters.sql92 import parse_selector
from rocketmq_wire.filters.sql92.grammar import TEXT_SIZE_MAX
from rocketmq_wire.filters.sql92.values import (
    INTEGER_MAX,
    compare,
    compare_in_order,
    read_double,
    read_whole,
)

MESSAGE = {"a": "5", "b": "abc", "c": "true", "d": "5.5", "big": "99999999999", "TAGS": "TagA"}


def matches(expression: str, **properties: str) -> bool:
    return parse_selector(expression).matches({**MESSAGE, **properties})


@pytest.mark.parametrize(
    "expression",
    [
        "a = 5",
        "a = 5L",
        "a = 5.0",
        "a = '5'",
        "5 = a",
        "a <> 6",
        "a > 4",
        "a >= 5",
        "a < 5.5",
        "a <= 5",
        "d = 5.5",
        "d > 5.0",
        "big = 99999999999",
        "big > 2147483648",
        "TAGS = 'TagA'",
        "b = 'abc'",
        "x = 'it''s'",
        "a BETWEEN 5 AND 6",
        "a between -5 and 5",
        "a NOT BETWEEN 6 AND 7",
        "a NOT BETWEEN 7 AND 6",
        "b IN ('x', 'abc')",
        "b not in ('x')",
        "(b) IN ('abc')",
        "missing IS NULL",
        "a IS NOT NULL",
        "NULL IS NULL",
        "c = TRUE",
        "TRUE",
        "TRUE = TRUE",
        "NOT FALSE",
        "NOT a",
        "NOT a = TRUE",
        "NOT (a = 6)",
        "missing = 1 OR a = 5",
        "a = 5 AND b = 'abc' AND c = TRUE",
        "a = 6 OR a = 7 OR a = 5",
        "a = 4 AND a = 5 OR a = 5",
        "b CONTAINS 'b'",
        "b startswith 'ab'",
        "b ENDSWITH 'bc'",
        "b NOT CONTAINS 'x'",
        "b NOT STARTSWITH 'x'",
        "b NOT ENDSWITH 'x'",
        "missing = gone",
        "NOT (b = missing)",
        "b <> missing",
        "a > +4",
        "a > - - 4",
        "a = .5E1",
        "a = 5.",
        "d > a",
        "/* a * b */ a = 5",
        "-- why\na = 5",
        "a = --5",
        "\t a\r\n=\f5 ",
        "$x_1 = 'y'",
        "a = 5 LIKE 'x'",
        "(a = 5) = TRUE",
    ],
)
def test_expression_matches(expression: str) -> None:
    assert matches(expression, x="it's", **{"$x_1": "y"})


@pytest.mark.parametrize(
    "expression",
    [
        "a",
        "NULL",
        "FALSE",
        "b",
        "missing = 1",
        "missing <> 1",
        "NOT (missing = 1)",
        "missing > 1",
        "missing BETWEEN 1 AND 2",
        "missing NOT BETWEEN 1 AND 2",
        "missing IN ('x')",
        "missing NOT IN ('x')",
        "missing NOT CONTAINS 'x'",
        "b NOT CONTAINS ''",
        "b CONTAINS ''",
        "5 NOT CONTAINS '6'",
        "NOT a = 6",
        "NOT missing",
        "a IS NULL",
        "a = 5 AND missing = 1",
        "FALSE OR missing = 1",
        # Each of these meets a text that is no such number.
        "d = 5",
        "d > 4",
        "big = 5",
        "big > 5L",
        "b = 5",
        "b <> 5",
        "NOT (b = 5)",
        "b > 5.0",
        "b = 5 OR a = 5",
        "b > a",
        "a > b",
        "TRUE = a",
        "5 = TRUE",
        "a = -5",
        "- b = 5",
        "a LIKE '5'",
        "a+1>2",
        "a = 05",
        "a NOT BETWEEN 4 AND 6",
    ],
)
def test_expression_does_not_match(expression: str) -> None:
    assert not matches(expression)


def test_true_left_of_or_hides_what_cannot_be_evaluated() -> None:
    assert matches("a = 5 OR b = 5")
    assert not matches("b = 5 OR a = 5")
    assert not matches("a = 6 AND b = 5")


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "   ",
        "5",
        "'text'",
        "-a",
        "a =",
        "a = NULL",
        "NULL = a",
        "a > 'x'",
        "a > TRUE",
        "b > 'a'",
        "a > (b = 1)",
        "a > 5 > 3",
        "TRUE = 5",
        "a BETWEEN 10 AND 1",
        "a BETWEEN NULL AND 1",
        "a BETWEEN 'a' AND 'b'",
        "a BETWEEN 1 AND 'x'",
        "a BETWEEN 1",
        "a IN ()",
        "a IN (5)",
        "a IN ('x'",
        "'x' IN ('x')",
        "(a = 5",
        "a NOT 5",
        "a IS 5",
        "a IS NOT 5",
        "a = 0.0",
        "a = 1e999",
        "a = 9223372036854775808",
        "a = 5 @",
        "a = 'open",
        "a CONTAINS 5",
        "NOT 5",
        "5 AND TRUE",
        "a = 5 AND",
        "/* open",
        "-- a = 5\n",
        "a == 5",
        "a != 5",
        "ä = 5",
    ],
)
def test_expression_is_refused(expression: str) -> None:
    with pytest.raises(SqlSyntaxError, match="SQL92 expression is wrong"):
        parse_selector(expression)


def test_an_error_names_the_position_and_survives_pickling() -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse_selector("a = 5 AND b > 'x'")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert "at its end" in str(caught.value)
    with pytest.raises(SqlSyntaxError, match=r"at character 5 \('\)'\)"):
        parse_selector("a = )")


@pytest.mark.parametrize(
    ("expression", "unread"),
    [
        ("a = 5", ""),
        ("a = 5  ", ""),
        ("a = 5 /* why */ ", ""),
        ("a = 05", "5"),
        ("a LIKE 'x' @", "LIKE 'x' @"),
        ("a > 0x1", "x1"),
        ("a+1>2", "+1>2"),
        ("a = 5) AND b = 1", ") AND b = 1"),
    ],
)
def test_text_after_the_expression_is_reported(expression: str, unread: str) -> None:
    assert parse_selector(expression).unread == unread


def test_the_properties_looked_at_are_known() -> None:
    assert parse_selector("a = 5 AND (b IN ('x') OR NOT c) LIKE d").names == {"a", "b", "c"}


def test_what_could_exhaust_the_stack_is_refused_and_long_chains_are_not() -> None:
    assert matches(" OR ".join(["a = 6"] * 5_000 + ["a = 5"]))
    assert matches("(" * 40 + "a = 5" + ")" * 40)
    for hostile in (
        "(" * 5_000 + "a = 5",
        "NOT " * 5_000 + "a",
        "a = 1" + " = TRUE" * 500,
        "a" + " CONTAINS 'x'" * 500,
        "a = '" + "x" * TEXT_SIZE_MAX + "'",
    ):
        with pytest.raises(SqlSyntaxError):
            parse_selector(hostile)


def test_the_deepest_tree_that_is_taken_can_be_evaluated() -> None:
    assert not matches("a = 5" + " = TRUE" * 150 + " = FALSE")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        (" 5.5e1 ", 55.0),
        ("5d", 5.0),
        ("5.F", 5.0),
        ("-Infinity", -math.inf),
        ("0x1p3", 8.0),
        ("-0x.8P1d", -1.0),
        ("0x1p99999", math.inf),
        ("1e999", math.inf),
    ],
)
def test_texts_are_read_as_java_reads_doubles(text: str, value: float) -> None:
    assert read_double(text) == value


@pytest.mark.parametrize("text", ["", " ", "x", "5x", "1_000", "nan", "inf", "NaNf", "0x10", "٥.٥"])
def test_texts_that_are_no_doubles_are_errors(text: str) -> None:
    with pytest.raises(EvaluationError):
        read_double(text)


@pytest.mark.parametrize("text", ["", "+", " 5", "5 ", "5.0", "0x5", "5L", "9" * 10, "9" * 9_999])
def test_texts_that_are_no_integers_are_errors(text: str) -> None:
    with pytest.raises(EvaluationError):
        read_whole(text, INTEGER_MAX)


def test_integers_take_signs_zeros_and_every_script_that_java_takes() -> None:
    wanted = {"+5": 5, "-007": -7, "-2147483648": -(2**31), "٥": 5, "５": 5}
    assert {text: read_whole(text, INTEGER_MAX) for text in wanted} == wanted
    with pytest.raises(EvaluationError):
        read_whole("𝟓", INTEGER_MAX)


def test_doubles_have_javas_total_order() -> None:
    ascending = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    for left, right in itertools.pairwise(ascending):
        assert compare(left, right) == -compare(right, left) == -1
        assert compare(right, right) == 0
    assert compare_in_order("NaN", "Infinity") == 1


NAMES = st.sampled_from(["a", "b", "c", "missing", "TAGS"])
CONSTANTS = st.one_of(
    st.integers(0, 2**63 - 1).map(str),
    st.floats(1e-300, 1e300).map(repr),
    st.text(max_size=5).map(lambda text: "'" + text.replace("'", "''") + "'"),
    st.sampled_from(["TRUE", "FALSE", "NULL"]),
)
OPERANDS = st.one_of(NAMES, CONSTANTS, NAMES.map(lambda name: f"-{name}"))
STRINGS = st.text(max_size=3).map(lambda text: "'" + text.replace("'", "''") + "'")
NEGATIONS = st.sampled_from(["", "NOT "])
CONDITIONS = st.one_of(
    st.builds(
        "{} {} {}".format, OPERANDS, st.sampled_from(["=", "<>", ">", ">=", "<", "<="]), OPERANDS
    ),
    st.builds("{} {}BETWEEN {} AND {}".format, OPERANDS, NEGATIONS, OPERANDS, OPERANDS),
    st.builds("{} {}IN ({}, {})".format, NAMES, NEGATIONS, STRINGS, STRINGS),
    st.builds("{} IS {}NULL".format, OPERANDS, NEGATIONS),
    st.builds(
        "{} {}{} {}".format,
        OPERANDS,
        NEGATIONS,
        st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]),
        STRINGS,
    ),
)
EXPRESSIONS = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.builds("({}) AND ({})".format, inner, inner),
        st.builds("({}) OR ({})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=6,
)
PROPERTIES = st.dictionaries(
    st.sampled_from(["a", "b", "c", "TAGS"]),
    st.one_of(st.text(min_size=1, max_size=4), st.integers().map(str), st.floats().map(str)),
)


@given(EXPRESSIONS, PROPERTIES)
def test_generated_expressions_are_refused_or_answered(
    expression: str, properties: dict[str, str]
) -> None:
    try:
        selector = parse_selector(expression)
    except SqlSyntaxError:
        return
    assert selector.unread == ""
    assert selector.matches(properties) in (True, False)
    # A message never matches a condition and its negation.
    assert not (
        selector.matches(properties) and parse_selector(f"NOT ({expression})").matches(properties)
    )


@given(st.text(alphabet="ab'()=<>,-+. 0159eELNOTINSU/*\n", max_size=30))
def test_any_text_is_refused_or_compiled(text: str) -> None:
    try:
        selector = parse_selector(text)
    except SqlSyntaxError:
        return
    assert text.endswith(selector.unread)


@given(STRINGS, st.text(min_size=1))
def test_quoted_texts_equal_what_they_quote(quoted: str, other: str) -> None:
    text = quoted[1:-1].replace("''", "'")
    assert parse_selector(f"a = {quoted}").matches({"a": other}) is (text == other)


def test_comments_without_a_line_end_take_linear_time() -> None:
    text = "a=--5 OR " * 7_000 + "a=1"
    began = time.process_time()
    selector = parse_selector(text)
    assert time.process_time() - began < 1
    assert selector.node_count > 7_000
