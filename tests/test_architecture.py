"""Import rules: which layer may know which, read from the source and never by importing it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "rocketmq_wire": ROOT / "connector",
    "rocketmq_arrow": ROOT / "connector",
    "rocketmq_client": ROOT / "connector",
    "pyspark_rocketmq": ROOT / "connector",
    "rocketmq_cli": ROOT / "connector",
    "pytest_rocketmq": ROOT / "connector",
    "rocketmq_broker": ROOT / "broker_sim",
    "spark_jobs": ROOT,
}
STDLIB = frozenset(sys.stdlib_module_names)
# What waits, or asks the world something: not for code that only turns values into values.
SOCKETS = frozenset(
    {"socket", "ssl", "selectors", "select", "socketserver", "http", "urllib.request"}
)
WAITING = SOCKETS | {
    *("asyncio", "threading", "multiprocessing", "concurrent", "queue", "sched"),
    *("subprocess", "signal", "time"),
}
IMPURE = WAITING | {"random", "secrets", "tempfile", "shutil", "mmap"}
DISK = frozenset({"mmap", "shutil", "tempfile", "pathlib", "fcntl", "glob", "os"})
# Pure folders of the Spark side: Spark's lookup and every planner process import them.
PURE_SPARK_SIDE = ("boundary", "errors", "options", "planning")
# The only module that touches the disk: real files, and their stand-in in memory.
THE_DISK = "rocketmq_broker.storage.disk.files"
# A folder that holds more is to be split: a reader takes in a dozen names at a glance.
MODULES_IN_FOLDER_MAX = 16
GRPC = frozenset({"grpc", "grpc_health", "grpc_reflection"})


@dataclass(frozen=True)
class Rule:
    """What modules whose name starts with `prefix` may import. The longest prefix decides."""

    prefix: str
    may: frozenset[str]
    never: frozenset[str] = frozenset()

    def allows(self, imported: str) -> bool:
        if any(_is_within(imported, forbidden) for forbidden in self.never):
            return False
        root = imported.partition(".")[0]
        return root in STDLIB or any(_is_within(imported, allowed) for allowed in self.may)


ARROW = frozenset({"numpy", "pyarrow"})
CLIENT_MAY = ARROW | {"rocketmq_wire", "rocketmq_arrow", "rocketmq_client"}
SPARK_MAY = CLIENT_MAY | {"pyspark", "pyspark_rocketmq"}
BROKER_MAY = ARROW | {"isal", "rocketmq_wire", "rocketmq_arrow", "rocketmq_broker"}
PURE_WIRE = ("addresses", "model", "errors", "filters", "plural", "suggest")
PURE_MAY = frozenset({f"rocketmq_wire.{name}" for name in PURE_WIRE}) | {
    *(f"pyspark_rocketmq.{name}" for name in PURE_SPARK_SIDE),
    "rocketmq_client.loss",
}
RULES = (
    Rule("rocketmq_wire", frozenset({"rocketmq_wire"}), IMPURE),
    Rule("rocketmq_wire.grpc", frozenset({"rocketmq_wire", "google.protobuf"}), IMPURE),
    Rule("rocketmq_arrow", ARROW | {"rocketmq_wire", "rocketmq_arrow", "isal"}, IMPURE),
    Rule("rocketmq_client", CLIENT_MAY, SOCKETS),
    Rule("rocketmq_client.transport", CLIENT_MAY | GRPC | {"google.protobuf"}),
    Rule("pyspark_rocketmq", SPARK_MAY, SOCKETS),
    *(Rule(f"pyspark_rocketmq.{name}", PURE_MAY, IMPURE) for name in PURE_SPARK_SIDE),
    Rule(
        "pyspark_rocketmq.options.reference", PURE_MAY | {"rocketmq_arrow.source_columns"}, IMPURE
    ),
    Rule("rocketmq_broker", BROKER_MAY | {"tomli"}),
    Rule("rocketmq_broker.security.acl_4_9", BROKER_MAY | {"yaml"}),
    Rule("rocketmq_broker.engine", BROKER_MAY, IMPURE),
    Rule("rocketmq_broker.storage", BROKER_MAY, SOCKETS | {"asyncio", "time"} | DISK),
    Rule(THE_DISK, BROKER_MAY, SOCKETS | {"asyncio"}),
    Rule("rocketmq_broker.servers", BROKER_MAY | GRPC | {"google.protobuf"}),
    Rule("rocketmq_cli", SPARK_MAY | BROKER_MAY | {"rocketmq_cli", "tomli"}),
    Rule("pytest_rocketmq", SPARK_MAY | BROKER_MAY | {"rocketmq_cli", "pytest_rocketmq", "pytest"}),
    Rule("spark_jobs", frozenset({"pyspark", "pyspark_rocketmq"})),
)
# Spark's lookup imports these; one missing wheel here would hide every Python source.
LOOKED_UP = ("pyspark_rocketmq", "pyspark_rocketmq.session", "pyspark_rocketmq.source")
# Where an import inside a function is right: Spark's lookup, `rmq --help` and a broker without
# access control must stay cheap.
LAZY = (
    *(*LOOKED_UP, "rocketmq_cli", "rocketmq_broker.__main__"),
    "rocketmq_broker.security.guard",
    *("pytest_rocketmq", "pytest_rocketmq.plugin"),
)


@dataclass(frozen=True)
class Import:
    """One imported name, where it stands, and whether it runs when its module is imported."""

    name: str
    line: int
    is_local: bool
    is_for_types: bool
    level: int


def _is_within(name: str, prefix: str) -> bool:
    """True for `prefix` itself and for what lies below it."""
    return name == prefix or name.startswith(f"{prefix}.")


def _module_name(path: Path, base: Path) -> str:
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _modules() -> dict[str, Path]:
    return {
        _module_name(path, base): path
        for package, base in PACKAGES.items()
        for path in sorted((base / package).rglob("*.py"))
        if "stubs" not in path.relative_to(base).parts
    }


MODULES = _modules()
FOLDERS = sorted(name for name, path in MODULES.items() if path.name == "__init__.py")


def _imports(source: str) -> Iterator[Import]:
    def walk(node: ast.AST, is_local: bool, is_for_types: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, is_local, is_for_types, 0)
            elif isinstance(child, ast.ImportFrom):
                for alias in child.names:
                    name = f"{child.module}.{alias.name}"
                    yield Import(name, child.lineno, is_local, is_for_types, child.level)
            else:
                inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(
                    child.test
                )
                yield from walk(child, is_local or inside, is_for_types or typing_only)

    yield from walk(ast.parse(source), is_local=False, is_for_types=False)


def _rule_for(module: str) -> Rule:
    matching = [rule for rule in RULES if _is_within(module, rule.prefix)]
    return max(matching, key=lambda rule: len(rule.prefix))


def _violations(module: str, source: str) -> list[str]:
    rule = _rule_for(module)
    found = []
    for item in _imports(source):
        if item.level:
            found.append(f"{module}:{item.line} imports relatively")
        elif not rule.allows(item.name):
            found.append(f"{module}:{item.line} may not import {item.name}")
        elif item.is_local and not any(_is_within(module, lazy) for lazy in LAZY):
            found.append(f"{module}:{item.line} imports {item.name} inside a function")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_layer_may(module: str) -> None:
    assert _violations(module, MODULES[module].read_text()) == []


@pytest.mark.parametrize("module", [name for name in LOOKED_UP if name in MODULES])
def test_modules_that_spark_lists_import_nothing_heavy_at_the_top(module: str) -> None:
    heavy = [
        f"line {item.line}: {item.name}"
        for item in _imports(MODULES[module].read_text())
        if not item.is_local and not item.is_for_types
        if item.name.partition(".")[0] not in STDLIB | {"pyspark"}
        if not any(_is_within(item.name, pure) for pure in PURE_MAY | set(LOOKED_UP[1:]))
    ]
    assert heavy == []


def test_the_command_line_loads_nothing_heavy_before_it_knows_the_verb() -> None:
    heavy = {"pyspark", "pyspark_rocketmq", "pyarrow", "numpy", "grpc", "google", "asyncio"}
    loaded = {"rocketmq_cli.main"}
    for module in (waiting := ["rocketmq_cli.main"]):
        new = _known_imports(MODULES[module].read_text()) - loaded
        loaded |= new
        waiting += sorted(new)
    at_top = {
        item.name.partition(".")[0]
        for module in loaded
        for item in _imports(MODULES[module].read_text())
        if not item.is_local and not item.is_for_types
    }
    assert len(loaded) >= 3
    assert at_top & heavy == set()


def test_no_module_imports_itself_in_a_circle() -> None:
    """Imports for types count, too: a reader follows them as any other."""
    graph = {
        module: _known_imports(path.read_text(), counts_types=True) - {module}
        for module, path in MODULES.items()
    }
    assert _circle(graph) is None


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_lies_in_a_folder_imports_in_one_direction(folder: str) -> None:
    """A folder counts as one: two folders that import each other are a circle, too."""
    graph: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        if (part := _part_of(folder, module)) is None:
            continue
        parts = {_part_of(folder, name) for name in _known_imports(path.read_text())}
        graph.setdefault(part, set()).update({name for name in parts if name} - {part})
    assert _circle(graph) is None


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_holds_what_a_reader_takes_in_at_a_glance(folder: str) -> None:
    inside = [name for name in MODULES if name.rpartition(".")[0] == folder and name not in FOLDERS]
    assert len(inside) <= MODULES_IN_FOLDER_MAX, sorted(inside)


def test_every_package_has_a_marker_that_it_is_typed() -> None:
    missing = [
        package
        for package, base in PACKAGES.items()
        if package != "spark_jobs" and not (base / package / "py.typed").exists()
    ]
    assert missing == []


@pytest.mark.parametrize("module", MODULES)
def test_a_module_opens_with_what_it_owns(module: str) -> None:
    assert ast.get_docstring(ast.parse(MODULES[module].read_text()))


@pytest.mark.parametrize("module", MODULES)
def test_a_file_stays_within_500_lines(module: str) -> None:
    assert len(MODULES[module].read_text().splitlines()) <= 500


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("rocketmq_wire.remoting.frames", "import socket", "may not import socket"),
        (
            "rocketmq_wire.records.record",
            "from google.protobuf import message",
            "may not import google",
        ),
        ("rocketmq_client.cluster", "import grpc", "may not import grpc"),
        ("rocketmq_client.cluster", "from pyspark.sql import Row", "may not import pyspark"),
        ("rocketmq_broker.engine.messages.pulling", "import time", "may not import time"),
        ("rocketmq_broker.engine", "import rocketmq_client.cluster", "may not import rocketmq"),
        ("rocketmq_broker.storage.log.commit_log", "import os", "may not import os"),
        ("pyspark_rocketmq.planning.micro_batch", "import pyarrow", "may not import pyarrow"),
        ("pyspark_rocketmq.options.tables", "import pyspark", "may not import pyspark"),
        ("pyspark_rocketmq.stream.reader", "import tests.support", "may not import tests"),
        ("spark_jobs.job", "import rocketmq_client", "may not import rocketmq_client"),
        ("rocketmq_arrow.decode.decoder", "from . import columns", "imports relatively"),
        ("rocketmq_arrow.decode.decoder", "def f():\n    import numpy", "inside a function"),
    ],
)
def test_the_rules_catch_what_they_forbid(module: str, source: str, complaint: str) -> None:
    (violation,) = _violations(module, source)
    assert complaint in violation


def test_a_circle_of_imports_is_found() -> None:
    assert _circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert _circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def _known_imports(source: str, *, counts_types: bool = False) -> set[str]:
    """Our own modules that the source imports when it is imported itself."""
    names = {
        item.name
        for item in _imports(source)
        if not item.is_local and not item.level and (counts_types or not item.is_for_types)
    }
    return {name if name in MODULES else name.rpartition(".")[0] for name in names} & set(MODULES)


def _part_of(folder: str, module: str) -> str | None:
    """The module or folder directly in `folder` that `module` is, or lies in."""
    if not module.startswith(f"{folder}."):
        return None
    return module.removeprefix(f"{folder}.").partition(".")[0]


def _circle(graph: dict[str, set[str]]) -> list[str] | None:
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str] | None:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return None
        for imported in sorted(graph.get(module, ())):
            if found := visit(imported, [*path, module]):
                return found
        done.add(module)
        return None

    return next((found for module in sorted(graph) if (found := visit(module, []))), None)
