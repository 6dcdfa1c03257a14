"""The names that tests import from `pytest_rocketmq` itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pytest_rocketmq

NAMES = ["RocketMQ", "RocketMQFaults"]


def test_the_package_exports_these_names() -> None:
    assert sorted(pytest_rocketmq.__all__) == NAMES
    for name in NAMES:
        assert getattr(pytest_rocketmq, name).__name__ == name
    with pytest.raises(AttributeError, match="Broker"):
        pytest_rocketmq.Broker  # noqa: B018


def test_importing_the_plugin_loads_nothing_else_of_ours() -> None:
    code = (
        "import sys, pytest_rocketmq.plugin;"
        "print([name for name in sys.modules"
        " if name.startswith(('rocketmq_', 'pyspark', 'pyarrow', 'grpc'))])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
