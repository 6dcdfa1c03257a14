"""All jobs in local mode and on a standalone cluster; `--short` keeps one job on the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--short", action="store_true", help="one job on the cluster")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if _HERE in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.timeout(1_800))
    if config.getoption("--short"):
        left_out = [item for item in ours if item.get_closest_marker("short") is None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
