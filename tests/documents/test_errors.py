"""The page of errors has every class that our sources can give, and no other; and the test that
`error_tests` names for a class expects that very class: in an assertion or in what an exception
must match.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from documents.error_tests import EXPECTED_BY
from pyspark_rocketmq.errors import DataLossError
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import LossReason, lost_range
from rocketmq_wire.model import QueueId

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "connector").rglob("*.py"), *(ROOT / "broker_sim").rglob("*.py")]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
# Heading, cause, remedy.
SECTION = re.compile(r"^### `ROCKETMQ_([\w.]+)`\n\n.+\n\n\*\*What to do:\*\* .+\n", re.M)
CLASSES = SECTION.findall(PAGE)
TESTS = [(code, path, name) for path, by in EXPECTED_BY.items() for code, name in by.items()]
# Errors whose class is an argument, with the index of that argument.
KINDS = {
    "OptionError": ("OPTION", 2),
    "UnsupportedError": ("UNSUPPORTED", 0),
    "TlsError": ("TLS", 0),
}
BY_DEFAULT = {"OPTION.INVALID"}
BY_REMARK = {"AUTH.MISSING_KEY", "AUTH.WRONG_KEY", "AUTH.NO_PERMISSION"}
"""Classes that depend on a broker's remark: see `tests/security/test_acl_signing.py`."""

Function = ast.FunctionDef


def test_the_page_has_every_class_of_the_sources_and_no_other() -> None:
    found = {f"DATA_LOSS.{reason.value}" for reason in LossReason} | BY_DEFAULT | BY_REMARK
    for path in SOURCES:
        text = path.read_text("utf-8")
        found |= set(re.findall(r"\[ROCKETMQ_([A-Z_]+(?:\.[A-Z0-9_]+)?)\]", text))
        found |= set(kinds(ast.parse(text)))
    assert "[ROCKETMQ_BROKER.CODE_{" in (
        ROOT / "connector" / "rocketmq_wire" / "errors.py"
    ).read_text("utf-8")
    assert set(CLASSES) == found | {"BROKER.CODE_n"}


def test_every_class_has_its_cause_its_remedy_and_its_test() -> None:
    assert re.findall(r"^### `ROCKETMQ_([\w.]+)`$", PAGE, re.M) == CLASSES
    assert sorted(CLASSES) == sorted(code for code, _, _ in TESTS)


@pytest.mark.parametrize("reason", LossReason)
def test_a_loss_has_one_class_with_and_without_spark(reason: LossReason) -> None:
    loss = lost_range(reason, QueueId("t", "b", 0), 0, 1, None)
    for error in (RangeLostError(loss), DataLossError(loss)):
        assert str(error).startswith(f"[ROCKETMQ_DATA_LOSS.{reason.value}] ")


@pytest.mark.parametrize(("code", "path", "name"), TESTS, ids=[code for code, _, _ in TESTS])
def test_the_test_of_a_class_expects_that_class(code: str, path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, Function)}
    assert expects(functions[name], functions, code), f"{path}::{name} does not expect {code}"


CHECKED = '''
def refused(kind):
    with pytest.raises(E, match=rf"^\\\\[ROCKETMQ_A\\\\.{kind}\\\\] "):
        yield

def test_by_helper():
    with refused("ONE"):
        ask("TWO")

def test_by_assertion():
    assert "[ROCKETMQ_A.ONE] " in text

def test_by_name():
    text = r"ROCKETMQ_A\\\\.ONE.*why"
    with pytest.raises(E, match=text):
        pass

@pytest.mark.parametrize("kind", ["ONE"])
def test_by_parameter(kind):
    with refused(kind):
        pass

def test_that_only_mentions_it():
    """ROCKETMQ_A.ONE"""
    unused = "ROCKETMQ_A.ONE"
    with pytest.raises(E, match="ROCKETMQ_A"):
        raise E("ROCKETMQ_A.ONE")
'''


@pytest.mark.parametrize("way", ["helper", "assertion", "name", "parameter"])
def test_a_class_is_expected_in_words(way: str) -> None:
    functions = {node.name: node for node in ast.parse(CHECKED).body if isinstance(node, Function)}
    test = functions[f"test_by_{way}"]
    assert expects(test, functions, "A.ONE")
    assert not expects(test, functions, "A.TWO")
    assert not expects(test, functions, "A")
    assert not expects(functions["test_that_only_mentions_it"], functions, "A.ONE")


def kinds(tree: ast.Module) -> Iterator[str]:
    """The classes that calls of errors with a kind name, also by a variable."""
    values = named(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
            family, index = KINDS[node.func.id]
            for text in texts(node.args[index], values) if len(node.args) > index else ():
                # A condition within may hold other texts.
                if re.fullmatch(r"[A-Z][A-Z_]+", text):
                    yield f"{family}.{text}"


def expects(test: Function, functions: dict[str, Function], code: str) -> bool:
    """What a test expects has the class in it, or its helper does with the kind it is given."""
    family, _, kind = code.replace("_n", r"_\d+").partition(".")
    whole = re.compile(
        rf"ROCKETMQ_{family}" + (rf"\.{kind}" if kind else "") + r"(?!\w|\.(?:[A-Z{]|$))"
    )
    by_kind = f"ROCKETMQ_{family}.{{}}"
    values = named(test)
    for expected in expectations(test):
        if any(whole.search(text) for text in texts(expected, values)):
            return True
    for call in ast.walk(test):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            if (helper := functions.get(call.func.id)) is None:
                continue
            given = {text for part in call.args for text in texts(part, values)}
            for expected in expectations(helper):
                for text in texts(expected, named(helper)):
                    if whole.search(text) or (kind in given and by_kind in text):
                        return True
    return False


def expectations(function: Function) -> Iterator[ast.expr]:
    """What a function asserts, and what it wants exceptions to match."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            yield node.test
        if isinstance(node, ast.keyword) and node.arg == "match":
            yield node.value


def named(tree: ast.AST) -> dict[str, list[ast.expr]]:
    """What names stand for: assigned, looped over, or a parameter of the test."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, (ast.For, ast.comprehension)):
            pairs = [(node.target, node.iter)]
        elif isinstance(node, Function):
            pairs = [
                (ast.parse(a.arg, mode="eval").body, d)
                for a in node.args.args
                for d in node.decorator_list
            ]
        else:
            continue
        for target, value in pairs:
            for part in ast.walk(target):
                if isinstance(part, ast.Name):
                    found.setdefault(part.id, []).append(value)
    return found


def texts(node: ast.expr, values: dict[str, list[ast.expr]]) -> Iterator[str]:
    """Every text within an expression and what its names stand for, without escapes."""
    seen: set[str] = set()
    waiting = [node]
    while waiting:
        for part in ast.walk(waiting.pop()):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value.replace("\\", "")
            elif isinstance(part, ast.JoinedStr):
                pieces = [p.value if isinstance(p, ast.Constant) else "{}" for p in part.values]
                yield "".join(map(str, pieces)).replace("\\", "")
            elif isinstance(part, ast.Name) and part.id not in seen:
                seen.add(part.id)
                waiting += values.get(part.id, [])
