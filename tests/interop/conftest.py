"""`--short` keeps two minutes of the suite: one version, and one command of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--short", action="store_true", help="one version, and one of each kind")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: not part of the short form")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--short"):
        return
    ours = [item for item in items if _HERE in item.path.parents]
    left_out = [item for item in ours if item.get_closest_marker("long") is not None]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
