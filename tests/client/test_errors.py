"""The tree of the client's errors."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import rocketmq_client
from rocketmq_client import errors


def test_the_tree_in_the_docstring_names_every_error_of_the_package_once() -> None:
    drawn = (errors.__doc__ or "").split()
    defined = [
        name
        for name, found in inspect.getmembers(errors, inspect.isclass)
        if issubclass(found, Exception) and found.__module__ == errors.__name__
    ]
    assert {name: drawn.count(name) for name in defined} == dict.fromkeys(defined, 1)
    assert {word for word in drawn if word.endswith("Error")} == {*defined, "RocketMQError"}


def test_every_error_of_the_package_is_defined_in_errors() -> None:
    package = Path(str(rocketmq_client.__file__)).parent
    elsewhere = [
        f"{path.name}: {node.name}"
        for path in package.rglob("*.py")
        if path != package / "errors.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        if any(ast.unparse(base).endswith(("Error", "Exception")) for base in node.bases)
        if not node.name.startswith("_")
    ]
    assert elsewhere == []
