"""Suggestions for a name that is nearly a known one."""

from __future__ import annotations

import pytest

from rocketmq_wire.suggest import did_you_mean, nearest


@pytest.mark.parametrize("word", ["ordres", "Orders", "ORDERS", "order"])
def test_a_similar_name_is_found_whatever_its_case(word: str) -> None:
    assert nearest(word, ["payments", "orders"]) == "orders"
    assert did_you_mean(word, ["payments", "orders"]) == " Did you mean 'orders'?"


def test_nothing_is_suggested_where_nothing_is_similar() -> None:
    assert nearest("xyz", ["payments", "orders"]) is None
    assert did_you_mean("xyz", []) == ""
