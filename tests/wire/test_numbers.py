"""Whole numbers in texts of peers."""

from __future__ import annotations

import pytest

from rocketmq_wire.numbers import whole_number


@pytest.mark.parametrize("text", ["0", "007", "42", "9" * 18])
def test_ascii_digits_are_a_number(text: str) -> None:
    assert whole_number(text) == int(text)


@pytest.mark.parametrize(
    "text", [None, "", "-", "-1", "+1", " 1", "1_0", "1.0", "²", "١", "9" * 19, "9" * 5_000]
)
def test_anything_else_is_none(text: str | None) -> None:
    assert whole_number(text) is None


def test_a_minus_needs_a_signed_number() -> None:
    assert whole_number("-12", is_signed=True) == -12
    assert whole_number("--1", is_signed=True) is None
    assert whole_number("-" + "9" * 18, is_signed=True) == -(10**18 - 1)


def test_the_number_of_digits_has_a_limit() -> None:
    assert whole_number("123", digits_max=3) == 123
    assert whole_number("1234", digits_max=3) is None
