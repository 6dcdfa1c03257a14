"""Answers that are a value or an error."""

from __future__ import annotations

import pytest

from rocketmq_wire.errors import ConnectError, RocketMQError, raise_first


def test_values_come_back_unless_one_is_an_error() -> None:
    answers: dict[str, int | RocketMQError | None] = {"a": 1, "b": None}
    assert raise_first(answers) == {"a": 1, "b": None}
    first, second = ConnectError("x", "away"), ConnectError("y", "away")
    with pytest.raises(ConnectError) as raised:
        raise_first({**answers, "c": first, "d": second})
    assert raised.value is first
