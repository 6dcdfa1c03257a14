"""Properties of half messages."""

from __future__ import annotations

import pytest

from rocketmq_wire.requests.transactions import (
    immunity_ms,
    is_half,
)


@pytest.mark.parametrize(
    ("value", "sys_flag", "expected"),
    [("true", 0x4, True), ("TRUE", 0, True), ("false", 0x4, False), ("true", 0x8, False)],
)
def test_the_property_makes_a_half_message(value: str, sys_flag: int, expected: bool) -> None:
    assert is_half({"TRAN_MSG": value}, sys_flag) is expected


@pytest.mark.parametrize(
    ("text", "expected"), [("60", 60_000), ("0", 0), ("-1", None), ("x", None), ("", None)]
)
def test_immunity_is_in_seconds(text: str, expected: int | None) -> None:
    assert immunity_ms({"CHECK_IMMUNITY_TIME_IN_SECONDS": text}) == expected
