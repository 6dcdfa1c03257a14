"""The runs of a query that writes numbers into a topic, each of which can be killed."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.accounting.submitted import ROOT, Job, spark_submit
from bench.streaming import TOO_SLOW

_SECONDS_MAX = 600.0
"""Beside much else a start alone takes minutes."""
_STARTS_MAX = 5
_POLL_S = 0.02


class Writer:
    """`writer_job` or `plain_writer`, one run after the other on one checkpoint."""

    def __init__(self, directory: Path, arguments: list[str], *, is_plain: bool) -> None:
        self.checkpoint = directory / "checkpoint"
        self._log_path = directory / "writer.log"
        self._begun_path = directory / "begun"
        script = ROOT / "bench" / "accounting" / "writer_job.py"
        plain = [sys.executable, "-m", "bench.accounting.plain_writer"]
        self._command = [
            *(plain if is_plain else spark_submit(script, directory / "spark")),
            *("--checkpoint", str(self.checkpoint), "--begun", str(self._begun_path)),
            *arguments,
        ]
        self._job: Job | None = None
        self.started_at = 0.0
        """In seconds of the clock on the wall, as those of files are."""

    def start(self) -> None:
        """Start a run."""
        self.started_at = time.time()
        self._job = Job(self._command, self._log_path)

    def kill(self) -> None:
        """End the JVM, the driver and every worker at once, without a last word."""
        if self._job is not None:
            self._job.end(signal.SIGKILL)
            self._job = None

    def begun_at(self) -> float:
        """When this run's query began, behind all that Spark needs to start."""
        return self._begun_path.stat().st_mtime

    def planned(self) -> int:
        """How many batches are planned."""
        return _count(self.checkpoint / "offsets")

    def finished(self) -> int:
        """How many batches are written down as done."""
        return _count(self.checkpoint / "commits")

    def wait(self, *, finished: int = 0, planned: int = 0) -> None:
        """Wait until this many batches are done."""
        self.wait_until(lambda: self.finished() >= finished and self.planned() >= planned)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so.

        Starts again when Spark gave up starting its Python process, as it does on a busy machine.
        Raises RuntimeError when the run ended by itself for any other reason.
        """
        end, starts = time.monotonic() + _SECONDS_MAX, 1
        while not is_so():
            assert self._job is not None
            if self._job.has_ended:
                if TOO_SLOW not in self._job.said() or starts == _STARTS_MAX:
                    raise RuntimeError(f"the writer ended by itself:\n{self._job.said()}")
                starts += 1
                self.start()
            if time.monotonic() > end:
                raise TimeoutError(f"not in {_SECONDS_MAX:.0f} s:\n{self._job.said()}")
            time.sleep(_POLL_S)


def _count(folder: Path) -> int:
    return len([path for path in folder.glob("[0-9]*") if path.name.isdecimal()])
