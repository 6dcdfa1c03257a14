"""The pages of the Python API have every exported name, and docstrings explain its parameters."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import griffe
import pytest

ROOT = Path(__file__).parents[2]
# Where programs look names up; the protocol's values and requests have no text for each field.
EXPLAINED = ("pyspark_rocketmq", "rocketmq_client", "pytest_rocketmq", "rocketmq_broker")
PAGES = {
    "python-api": ("pyspark_rocketmq",),
    "python-api-client": ("rocketmq_client",),
    "python-api-testing": ("pytest_rocketmq", "rocketmq_broker"),
    "python-api-protocol": ("rocketmq_arrow", "rocketmq_wire"),
}
# `conf/broker.toml` explains each key of the broker.
ELSEWHERE = ("BrokerConfig", "ConfigError")


@pytest.fixture(scope="module")
def sources() -> griffe.ModulesCollection:
    folders = [ROOT / "connector", ROOT / "broker_sim"]
    loader = griffe.GriffeLoader(search_paths=folders)
    for doors in PAGES.values():
        for door in doors:
            loader.load(door)
    loader.resolve_aliases(implicit=True, external=False)
    return loader.modules_collection


def fixtures() -> set[str]:
    plugin = (ROOT / "connector" / "pytest_rocketmq" / "plugin.py").read_text("utf-8")
    names = re.findall(r"@pytest\.fixture(?:\(.*\))?\ndef (\w+)\(", plugin)
    return {f"pytest_rocketmq.plugin.{name}" for name in names if not name.startswith("_")}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_every_exported_name_once(page: str) -> None:
    exported = {f"{door}.{name}" for door in PAGES[page] for name in exported_by(door)}
    if "pytest_rocketmq" in PAGES[page]:
        assert len(fixtures()) >= 7
        exported |= fixtures()
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    assert sorted(re.findall(r"^::: ([\w.]+)$", text, re.M)) == sorted(exported)


@pytest.mark.parametrize("door", [door for doors in PAGES.values() for door in doors])
def test_every_exported_name_has_a_docstring(door: str, sources: griffe.ModulesCollection) -> None:
    names = exported_by(door)
    assert [name for name in names if not target(sources[door][name]).docstring] == []


@pytest.mark.parametrize("door", EXPLAINED)
def test_docstrings_explain_parameters_and_fields(
    door: str, sources: griffe.ModulesCollection
) -> None:
    names = [name for name in exported_by(door) if name not in ELSEWHERE]
    found = {name: list(unexplained(target(sources[door][name]))) for name in names}
    assert {name: missing for name, missing in found.items() if missing} == {}


def exported_by(door: str) -> list[str]:
    """The names of a package, without its `__version__`."""
    return [name for name in importlib.import_module(door).__all__ if not name.startswith("__")]


def target(name: griffe.Object | griffe.Alias) -> griffe.Object:
    return name.final_target if isinstance(name, griffe.Alias) else name


def unexplained(exported: griffe.Object) -> Iterator[str]:
    """The parameters, fields and values of an exported name that no docstring explains.

    Programs catch errors and do not make them; they get `ReceivedMessage` from consumers.
    """
    text = exported.docstring.value if exported.docstring else ""
    if isinstance(exported, griffe.Function):
        yield from unnamed(exported, text)
    if not isinstance(exported, griffe.Class) or exported.name.endswith(("Error", "Source")):
        return
    own = {n: m for n, m in exported.members.items() if isinstance(m, griffe.Object)}
    if "__init__" in own and "dataclass" not in exported.labels:
        start = own["__init__"]
        assert isinstance(start, griffe.Function)
        yield from unnamed(start, text + (start.docstring.value if start.docstring else ""))
    if "dataclass" in exported.labels or is_enum(exported):
        for name, member in own.items():
            is_public = isinstance(member, griffe.Attribute) and not name.startswith("_")
            if is_public and not member.docstring and not explains(text, name):
                yield name


def is_enum(exported: griffe.Class) -> bool:
    return any("Enum" in str(base) for base in exported.bases)


def unnamed(function: griffe.Function, text: str) -> Iterator[str]:
    for parameter in function.parameters:
        if parameter.name != "self" and not explains(text, parameter.name):
            yield parameter.name


def explains(text: str, name: str) -> bool:
    """Whether a docstring's `Args:` has the name."""
    return re.search(rf"^ *{name}: .", text, re.M) is not None


def test_a_parameter_without_a_text_is_found(tmp_path: Path) -> None:
    code = (
        '''class A:
    """Explains `a` alone.

    Args:
        a: A number.
    """

    def __init__(self, a: int, b: int) -> None: ...
''',
        '''import enum
class E(enum.Enum):
    """Values."""

    ONE = 1
    """The first."""
    TWO = 2
''',
    )
    for text, missing in zip(code, ("b", "TWO"), strict=True):
        module = griffe.visit("m", filepath=tmp_path / "m.py", code=text)
        (exported,) = (m for m in module.members.values() if isinstance(m, griffe.Class))
        assert list(unexplained(exported)) == [missing]
