"""Errors: one line each, with a stable class, the facts and what to do; they survive pickling."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

import pyspark_rocketmq
from pyspark_rocketmq.errors import (
    CheckpointError,
    ClusterUnreachableError,
    DataLossError,
    DecisionsAwayError,
    DiscoveryDiedError,
    GroupInUseError,
    NothingWrittenError,
    OptionError,
    ReplayError,
    SchemaError,
    SinkRowError,
    SinkSchemaError,
    UnfinishedTransactionError,
    UnsupportedError,
    WriteIdError,
)
from rocketmq_client.loss import Loss, LossReason
from rocketmq_wire.model import Bounds, QueueId

QUEUE = QueueId("orders", "broker-a", 3)
ERRORS = [
    OptionError("group", "is odd"),
    SchemaError("unknown column 'x'"),
    UnsupportedError("OPTION", "option 'sql' is not supported yet"),
    GroupInUseError("g", ("a", "b", "c", "d")),
    DiscoveryDiedError("ValueError('x')"),
    CheckpointError("is damaged", "{}"),
    SinkSchemaError("column 'body' is missing"),
    SinkRowError(3, "row 4 (counted from 0)", "has no body"),
    NothingWrittenError(),
    UnfinishedTransactionError("query", 7, 2, "the broker refused"),
    DecisionsAwayError("decisions", ("broker-a",)),
    WriteIdError("export", 7, "follows 8, which is decided"),
    ReplayError("query", 7, "is being finished by another driver"),
    ClusterUnreachableError("nameServer=h:1", "h:1", "refused", 2, 3_000),
    *(DataLossError(Loss(reason, QUEUE, 7, 5, Bounds(0, 5), 2)) for reason in LossReason),
    *(DataLossError(Loss(reason, QUEUE, 7, None, None, None)) for reason in LossReason),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_an_error_is_one_line_with_its_class_first_and_travels(error: Exception) -> None:
    text = str(error)
    assert re.match(r"\[ROCKETMQ_[A-Z]+(_[A-Z]+)?\.[A-Z_]+\] ", text)
    assert "\n" not in text
    assert "{" not in text.replace("{}", "")
    assert str(pickle.loads(pickle.dumps(error))) == text


@pytest.mark.parametrize("reason", list(LossReason))
def test_every_loss_says_how_to_continue(reason: LossReason) -> None:
    text = str(DataLossError(Loss(reason, QUEUE, 7, 5, Bounds(0, 5), 2)))
    assert f"[ROCKETMQ_DATA_LOSS.{reason.value}] topic=orders broker=broker-a queue=3" in text
    assert "requested=7 available=[0,5)" in text
    assert "2 messages" in text or "2 of" in text
    assert "Set failOnDataLoss=false to continue" in text


def test_every_error_class_is_in_the_errors_module_and_its_tree() -> None:
    package = Path(str(pyspark_rocketmq.__file__)).parent
    defined = {
        (path.name, node.name)
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error")
        if not node.name.startswith("_")
    }
    assert {name for name, _ in defined} == {"errors.py"}
    tree = ast.get_docstring(ast.parse((package / "errors.py").read_text())) or ""
    assert not [name for _, name in defined if name not in tree]


def test_a_deleted_topic_that_was_read_to_its_end_lost_nothing() -> None:
    loss = Loss(LossReason.TOPIC_DELETED, QueueId("t", "b", 0), 5, None, None, 0)
    assert "no longer exists, all known messages were read." in str(DataLossError(loss))
