"""The notebook runs from top to bottom, in a kernel of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "docs" / "lag.ipynb"
CELL_TIMEOUT_S = 240


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_lag_chart_grows_and_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The kernel and Spark's workers: this environment's Python.
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    book = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(
        book, timeout=CELL_TIMEOUT_S, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    charts = [
        output["data"]["text/html"]
        for cell in book.cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
    assert any("<svg" in chart and "messages behind: now 0" in chart for chart in charts)


def test_the_notebook_is_committed_without_results() -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(book)
    assert not any(cell.get("outputs") for cell in book.cells)
