"""Errors: one line each, with a stable class, the facts and what to do; they survive pickling."""

from __future__ import annotations

import pickle
import re

import pytest

from pyspark_rocketmq.errors import (
    DataLossError,
    DiscoveryDiedError,
    GroupInUseError,
    Loss,
    OptionError,
    SchemaError,
    UnsupportedError,
)
from pyspark_rocketmq.planning.checkpoint import CheckpointError
from rocketmq_wire.model import Bounds, QueueId

QUEUE = QueueId("orders", "broker-a", 3)
ERRORS = [
    OptionError("group", "is odd"),
    SchemaError("unknown column 'x'"),
    UnsupportedError("OPTION", "option 'sql' is not supported yet"),
    GroupInUseError("g", ("a", "b", "c", "d")),
    DiscoveryDiedError("ValueError('x')"),
    CheckpointError("is damaged", "{}"),
    *(DataLossError(loss, QUEUE, 7, Bounds(0, 5), 2, 5) for loss in Loss),
    *(DataLossError(loss, QUEUE, 7, None, None, None) for loss in Loss),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_an_error_is_one_line_with_its_class_first_and_travels(error: Exception) -> None:
    text = str(error)
    assert re.match(r"\[ROCKETMQ_[A-Z]+(_[A-Z]+)?\.[A-Z_]+\] ", text)
    assert "\n" not in text
    assert "{" not in text.replace("{}", "")
    assert str(pickle.loads(pickle.dumps(error))) == text


@pytest.mark.parametrize("loss", list(Loss))
def test_every_loss_says_how_to_go_on(loss: Loss) -> None:
    text = str(DataLossError(loss, QUEUE, 7, Bounds(0, 5), 2, 5))
    assert f"[ROCKETMQ_DATA_LOSS.{loss.value}] topic=orders broker=broker-a queue=3" in text
    assert "requested=7 available=[0,5)" in text
    assert "2 messages" in text or "2 of" in text
    assert "Set failOnDataLoss=false to go on" in text
