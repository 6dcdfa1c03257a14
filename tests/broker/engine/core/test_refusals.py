"""Refusals: every call gives as many facts as the text has places for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_broker.engine.core import refusals

BROKER = Path(refusals.__file__).parents[2]
REFUSALS = {name: value for name, value in vars(refusals).items() if name.islower()}


def _calls() -> Iterator[tuple[str, str, list[ast.expr]]]:
    for path in sorted(BROKER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if ast.unparse(node.func.value) == "refusals":
                yield f"{path.name}:{node.lineno}", node.func.attr, node.args


def test_every_call_gives_the_facts_of_its_refusal():
    calls = list(_calls())
    assert len(calls) > 60
    for where, name, facts in calls:
        text = REFUSALS[name].text
        assert text.count("%") == len(facts), f"{where}: {name} says {text!r}"


def test_every_refusal_is_used():
    used = {name for _, name, _ in _calls()}
    assert used == {name for name, value in REFUSALS.items() if isinstance(value, refusals.Refusal)}


def test_a_missing_fact_is_an_error():
    with pytest.raises(TypeError):
        refusals.topic_missing()
