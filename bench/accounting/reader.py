"""One run of the job stream_to_parquet in processes of its own, which can be killed all at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from bench.streaming import TOO_SLOW
from rocketmq_cli.local_spark import QUICK_START

_ROOT = Path(__file__).parents[2]
_POLL_S = 0.05


class Reader:
    """spark-submit with its JVM and Python workers, started as an operator would."""

    def __init__(self, directory: Path, topic: str) -> None:
        self.output = directory / "output"
        self.log_path = directory / "reader.log"
        self._directory = directory
        self._arguments = [
            *("--topic", topic, "--group", "accounting"),
            *("--output", str(self.output), "--checkpoint", str(directory / "checkpoint")),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self, connection: tuple[str, str], *, limit: int, tasks: int, available_now: bool = False
    ) -> None:
        """Start a run that takes at most `limit` messages a batch, in at most `tasks` tasks.

        `connection` is the job's option that leads to the broker, and its value.
        """
        trigger = "available-now" if available_now else "0 seconds"
        command = [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", "local[2]"),
            *("--properties-file", str(_ROOT / "conf" / "spark-defaults.conf")),
            *("--conf", "spark.ui.enabled=false", "--driver-java-options", QUICK_START),
            *("--conf", f"spark.local.dir={self._directory / 'spark'}"),
            str(_ROOT / "spark_jobs" / "stream_to_parquet.py"),
            *connection,
            *self._arguments,
            *("--trigger", trigger, "--max-offsets-per-trigger", str(limit)),
            *("--max-partitions", str(tasks)),
        ]
        environment = {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(_ROOT / "conf"),
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    def wait_for_batches(self, count: int, *, timeout_s: float = 300.0) -> None:
        """Wait until this many more batches are finished than when it was called.

        Returns early when Spark gave up starting its Python process, as it does on a busy machine.
        Raises RuntimeError when the reader failed for any other reason.
        """
        wanted = len(self.finished_batches()) + count
        give_up_at = time.monotonic() + timeout_s
        while len(self.finished_batches()) < wanted:
            if self.has_ended:
                self._accept_end()
                return
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"no {count} batches in {timeout_s} s; see {self.log_path}")
            time.sleep(_POLL_S)

    def finished_batches(self) -> list[int]:
        folder = self._directory / "checkpoint" / "commits"
        return sorted(int(p.name) for p in folder.glob("[0-9]*")) if folder.exists() else []

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def wait(self, *, timeout_s: float) -> bool:
        """Wait for its own end; False if Spark was too slow to start. Raises RuntimeError."""
        assert self._process is not None
        self._process.wait(timeout_s)
        return self._accept_end()

    def _accept_end(self) -> bool:
        assert self._process is not None
        code, self._process = self._process.returncode, None
        said = self.log_path.read_bytes()[-8_000:].decode(errors="replace")
        if code and TOO_SLOW not in said:
            raise RuntimeError(f"the reader failed with {code}:\n{said}")
        return code == 0

    def stop(self) -> None:
        """Ask it to end, as an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the JVM, the driver and every worker at once, without a last word."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        # Spark's Python daemon leaves our process group: the tree is what must go.
        for process in _tree(self._process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        self._process.wait(60)
        self._process = None


def _tree(pid: int) -> list[psutil.Process]:
    """A process and all that it started."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
