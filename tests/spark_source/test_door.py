"""The door: what `pyspark_rocketmq` exports, and that it loads a name only when it is used."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_rocketmq

EXPORTED = {
    "BadBodyError",
    "DataLossError",
    "DefaultSource",
    "GroupInUseError",
    "Lag",
    "LagChart",
    "LagListener",
    "OffsetCommitListener",
    "OptionError",
    "PinnedOffsets",
    "ReplayError",
    "RocketMQError",
    "SchemaError",
    "SinkRowError",
    "SinkSchemaError",
    "UnfinishedTransactionError",
    "UnsupportedError",
    "WriteIdError",
    "answer_checks",
    "as_new_messages",
    "drop_replays",
    "finish_transactions",
    "measure_group_lag",
    "measure_lag",
    "pin_offsets",
    "restore_session",
    "show_progress",
}


def test_the_door_exports_what_people_use_and_shows_it() -> None:
    assert set(pyspark_rocketmq.__all__) == EXPORTED
    assert set(dir(pyspark_rocketmq)) == EXPORTED | {"__version__"}


def test_the_version_is_the_installed_one() -> None:
    assert pyspark_rocketmq.__version__ == importlib.metadata.version("pyspark-rocketmq")


@pytest.mark.parametrize("name", sorted(EXPORTED))
def test_every_exported_name_is_there(name: str) -> None:
    found = getattr(pyspark_rocketmq, name)
    assert found.__name__ in {name, "RocketMQDataSource"}


def test_another_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'read_options'"):
        pyspark_rocketmq.read_options  # noqa: B018


def test_type_checkers_see_every_exported_name() -> None:
    source = Path(str(pyspark_rocketmq.__file__)).read_text()
    imported = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported >= EXPORTED


def test_importing_the_package_loads_neither_arrow_nor_a_client() -> None:
    code = (
        "import sys, pyspark_rocketmq\n"
        "print(sorted({'pyarrow', 'numpy', 'grpc', 'rocketmq_client.cluster'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.strip() == "[]"
