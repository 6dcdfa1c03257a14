"""The Python that Spark asks for sources, chosen by an import, without a JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

IMPORTED = "import os, pyspark_rocketmq; print(os.environ.get('PYSPARK_PYTHON'))"
STARTED = {"PYSPARK_GATEWAY_PORT": "1"}


def other_python(folder: Path, exit_code: int) -> str:
    """A PATH whose `python3` has the source (exit code 0) or lacks it (1)."""
    program = folder / "python3"
    program.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    program.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def imported(path: str, more: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-c", IMPORTED],
        env=kept | {"PATH": path} | (more or {}),
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )


def test_an_import_by_path_makes_spark_use_this_python(tmp_path: Path) -> None:
    assert imported(other_python(tmp_path, 1)).stdout.strip() == sys.executable


@pytest.mark.parametrize("variable", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_a_choice_that_was_made_stays(tmp_path: Path, variable: str) -> None:
    done = imported(other_python(tmp_path, 1), {variable: "mine"})
    assert done.stdout.strip() == ("mine" if variable == "PYSPARK_PYTHON" else "None")


def test_a_python_that_has_the_source_stays(tmp_path: Path) -> None:
    assert imported(other_python(tmp_path, 0)).stdout.strip() == "None"
    assert imported(str(Path(sys.executable).parent)).stdout.strip() == "None"


def test_a_worker_of_spark_does_not_choose(tmp_path: Path) -> None:
    done = imported(other_python(tmp_path, 1), {"PYTHON_WORKER_FACTORY_SECRET": "s"})
    assert done.stdout.strip() == "None"


def test_an_import_after_the_start_of_spark_says_what_to_do(tmp_path: Path) -> None:
    done = imported(other_python(tmp_path, 1), STARTED)
    assert done.stdout.strip() == "None"
    assert f"looks for sources in {tmp_path}/python3, which has no" in done.stderr
    assert f"set PYSPARK_PYTHON={sys.executable}" in done.stderr
    assert "looks for" not in imported(other_python(tmp_path, 0), STARTED).stderr
