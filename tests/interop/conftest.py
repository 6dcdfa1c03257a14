"""What the tests with foreign programs share: Java, jars and brokers of both kinds.

They run by `./run test-interop` alone: jars are fetched, and every Java process costs a second.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "interop: needs Java and the jars of RocketMQ")
    config.addinivalue_line("markers", "short: part of ./run test-interop --short")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect this folder only when it is named: `./run test` must not need the jars."""
    del collection_path
    is_named = any("interop" in str(argument) for argument in config.invocation_params.args)
    return None if is_named else True
