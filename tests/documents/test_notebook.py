"""The notebook runs from top to bottom, in a kernel of its own."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "docs" / "lag.ipynb"
CELL_TIMEOUT_S = 240


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_lag_chart_grows_and_falls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The kernel and Spark's workers: this environment's Python.
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    book = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(
        book, timeout=CELL_TIMEOUT_S, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    committed = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert kinds(book) == kinds(committed), "write the results again: ./run docs --pictures"
    charts = [
        output["data"]["text/html"]
        for cell in book.cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
    (chart,) = charts
    (values,) = re.findall(r'messages behind: now (\S+), at most (\S+)"', chart)
    assert values[0] == "0" != values[1]
    assert "seconds behind: now 0" in chart


def kinds(book: Any) -> list[list[str]]:
    """What kinds of results each cell has, but for warnings."""
    return [
        [one.output_type for one in cell.get("outputs", []) if one.get("name") != "stderr"]
        for cell in book.cells
    ]


def test_the_notebook_is_committed_with_its_results() -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(book)
    assert "<svg" in str(book.cells)
    assert not any(
        one.get("name") == "stderr" for cell in book.cells for one in cell.get("outputs", [])
    )
