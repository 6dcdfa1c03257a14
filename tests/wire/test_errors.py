"""The tree of errors, and answers that are a value or an error."""

from __future__ import annotations

import ast
import inspect
import pickle
from pathlib import Path

import pytest

import rocketmq_wire
from rocketmq_wire import errors
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import (
    BrokerBusyError,
    BrokerError,
    ConnectError,
    RocketMQError,
    broker_error,
    raise_first,
    split_answers,
)

CLASSES = {
    name: found
    for name, found in vars(errors).items()
    if inspect.isclass(found) and issubclass(found, Exception)
}


def test_the_tree_in_the_docstring_names_every_error_once() -> None:
    drawn = (errors.__doc__ or "").split()
    assert {name: drawn.count(name) for name in CLASSES} == dict.fromkeys(CLASSES, 1)


def test_every_error_of_the_package_is_defined_in_errors() -> None:
    package = Path(rocketmq_wire.__file__).parent
    elsewhere = [
        f"{path.name}: {node.name}"
        for path in package.rglob("*.py")
        if path.name != "errors.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        if any(ast.unparse(base).endswith(("Error", "Exception")) for base in node.bases)
    ]
    assert elsewhere == []


def test_a_response_code_makes_the_error_that_is_its_own() -> None:
    busy = broker_error(ResponseCode.SYSTEM_BUSY, "later")
    assert type(busy) is BrokerBusyError
    assert busy.retryable
    assert type(broker_error(29, "")) is BrokerError


def test_the_code_of_an_error_is_a_plain_number_also_after_pickling() -> None:
    error = pickle.loads(pickle.dumps(broker_error(ResponseCode.NO_PERMISSION, "no")))
    assert (type(error.code), error.code, error.remark) == (int, 16, "no")


def test_values_come_back_unless_one_is_an_error() -> None:
    answers: dict[str, int | RocketMQError | None] = {"a": 1, "b": None}
    assert raise_first(answers) == {"a": 1, "b": None}
    first, second = ConnectError("x", "refused"), ConnectError("y", "refused")
    with pytest.raises(ConnectError) as raised:
        raise_first({**answers, "c": first, "d": second})
    assert raised.value is first


def test_values_and_errors_are_split_by_their_keys() -> None:
    error = ConnectError("x", "refused")
    answers: dict[str, int | RocketMQError] = {"a": 1, "b": error}
    assert split_answers(answers) == ({"a": 1}, {"b": error})
