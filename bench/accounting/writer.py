"""The command of a query that writes numbers into a topic."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.accounting.submitted import ROOT, spark_submit

TRANSACTIONAL: Final = "transactional"


def begun_path(directory: Path) -> Path:
    """The file that a run touches when its query begins, behind all that Spark needs to start."""
    return directory / "begun"


def writer_command(
    directory: Path,
    options: Mapping[str, str],
    rows: int,
    *,
    is_plain: bool = False,
    attempts: int = 1,
) -> list[str]:
    """The command of `writer_job`, or of `plain_writer`; batches have `rows` rows."""
    script = ROOT / "bench" / "accounting" / "writer_job.py"
    plain = [sys.executable, "-m", "bench.accounting.plain_writer"]
    return [
        *(plain if is_plain else spark_submit(script, directory / "spark", attempts=attempts)),
        *("--checkpoint", str(directory / "checkpoint"), "--begun", str(begun_path(directory))),
        *("--options", json.dumps(dict(options)), "--rows", str(rows)),
    ]
