"""A Spark job in processes of its own, which can be ended all at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from rocketmq_cli.support.local_spark import QUICK_START

ROOT = Path(__file__).parents[2]
_END_SECONDS_MAX = 60.0
# Spark repeats an error with the traces of Java behind it.
_SAID_BYTES = 40_000


def spark_submit(script: Path, scratch: Path, *, attempts: int = 1) -> list[str]:
    """The command that starts a job as an operator would; each task is tried so often."""
    return [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", f"local[2,{attempts}]"),
        *("--properties-file", str(ROOT / "conf" / "spark-defaults.conf")),
        *("--conf", "spark.ui.enabled=false", "--driver-java-options", QUICK_START),
        *("--conf", f"spark.local.dir={scratch}"),
        str(script),
    ]


class Job:
    """A process with all that it starts. What it says goes behind what is in the log already."""

    def __init__(self, command: Sequence[str], log_path: Path) -> None:
        environment = {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(ROOT / "conf"),
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        self._log_path = log_path
        self._log_start = log_path.stat().st_size if log_path.exists() else 0
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """By itself or by us."""
        return self._process.poll() is not None

    def wait(self, seconds_max: float) -> int:
        """Wait for its own end; its code. Raises TimeoutExpired."""
        return self._process.wait(seconds_max)

    def said(self) -> str:
        """The end of what it said."""
        said = self._log_path.read_bytes()[self._log_start :]
        return said[-_SAID_BYTES:].decode(errors="replace")

    def end(self, number: signal.Signals) -> None:
        """Send a signal to the JVM, the driver and every worker, and wait for the first of them."""
        # Spark's Python daemon leaves our process group: the tree is what must go.
        for process in _tree(self._process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        self._process.wait(_END_SECONDS_MAX)


def _tree(pid: int) -> list[psutil.Process]:
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
