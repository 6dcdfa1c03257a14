"""Counts in words."""

from __future__ import annotations

import pytest

from rocketmq_wire.plural import plural


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 queues"), (1, "1 queue"), (2, "2 queues"), (3_000, "3,000 queues")]
)
def test_one_is_one_and_the_others_are_many(count: int, text: str) -> None:
    assert plural(count, "queue") == text
