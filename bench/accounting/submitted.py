"""A Spark job in processes of its own, which can be ended all at once."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from rocketmq_cli.support.local_spark import QUICK_START

ROOT = Path(__file__).parents[2]
_END_SECONDS_MAX = 60.0
# Processes inherit it: Spark's Python daemon leaves the process group.
_MARK = "BENCH_JOB"
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
            _MARK: (mark := secrets.token_hex(8)),
        }
        self._mark = mark
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
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        self._process.wait(_END_SECONDS_MAX)

    def processes(self) -> list[psutil.Process]:
        """All that it started, also without a parent: the workers of a killed daemon."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(_MARK) == self._mark
        except psutil.Error:
            # It ended, or is not ours to look into.
            return False
