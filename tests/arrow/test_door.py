"""The names that other packages and people import from `rocketmq_arrow` itself."""

from __future__ import annotations

import subprocess
import sys

import rocketmq_arrow


def test_the_package_exports_these_names() -> None:
    assert dir(rocketmq_arrow) == [
        "COLUMNS",
        "CorruptPolicy",
        "DEFAULT_COLUMNS",
        "DecodeOptions",
        "Decoder",
        "arrow_schema",
        "encode_batch_body",
        "encode_records",
    ]
    for name in dir(rocketmq_arrow):
        assert getattr(rocketmq_arrow, name) is not None


def test_importing_the_package_loads_neither_numpy_nor_pyarrow() -> None:
    code = "import sys, rocketmq_arrow; print({'numpy', 'pyarrow'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"
