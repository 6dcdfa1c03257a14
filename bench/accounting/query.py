"""The runs of a streaming query, each of which can be killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from bench.accounting.submitted import Job
from bench.streaming import TOO_SLOW

_SECONDS_MAX: Final = 600.0
"""Beside much else a start alone takes minutes."""
_FAILURES_MAX: Final = 10
_POLL_S: Final = 0.02


class Query:
    """A query on one checkpoint, one run after the other.

    Args:
        directory: The folder of the checkpoint and of the log.
        command: Returns the command of the next run.
    """

    def __init__(self, directory: Path, command: Callable[[], list[str]]) -> None:
        self.checkpoint = directory / "checkpoint"
        self.log_path = directory / "query.log"
        self.started_at = 0.0
        """In seconds of the clock on the wall, as those of files are."""
        self.failures: list[str] = []
        """What each run said that ended by itself, apart from its ends that were expected."""
        self._command = command
        self._job: Job | None = None

    def start(self) -> None:
        """Start a run."""
        self.started_at = time.time()
        self._job = Job(self._command(), self.log_path)

    @property
    def pid(self) -> int | None:
        """The JVM, which started all other processes of the run; None between runs."""
        return None if self._job is None or self._job.has_ended else self._job.pid

    def processes(self) -> list[psutil.Process]:
        """The processes of the run."""
        return [] if self._job is None else self._job.processes()

    def stop(self) -> None:
        """Ask it to end, as an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the JVM, the driver and every worker at once, without a last word."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._job is not None and self._job.has_ended:
            self._take_end()
        if self._job is not None:
            self._job.end(number)
            self._job = None

    def expect_end(self) -> None:
        """Wait for the end of a run that lost a part which Spark does not replace."""
        assert self._job is not None
        self._job.wait(_SECONDS_MAX)
        self._job = None

    def finish(self) -> None:
        """Run until a run ends by itself and without an error."""
        is_over = False
        while not is_over:
            if self._job is None:
                self.start()
            assert self._job is not None
            self._job.wait(_SECONDS_MAX)
            is_over = self._take_end()

    def planned(self) -> int:
        """How many batches are planned."""
        return _count(self.checkpoint / "offsets")

    def finished(self) -> int:
        """How many batches are written down as done."""
        return _count(self.checkpoint / "commits")

    def wait(self, *, finished: int = 0, planned: int = 0) -> None:
        """Wait until this many batches are done."""
        self.wait_until(lambda: self.finished() >= finished and self.planned() >= planned)

    def wait_until_idle(self, seconds: float) -> None:
        """Wait until no batch was planned for this long."""
        planned, since = -1, 0.0

        def is_idle() -> bool:
            nonlocal planned, since
            if self.planned() != planned:
                planned, since = self.planned(), time.monotonic()
            return time.monotonic() - since > seconds

        self.wait_until(is_idle)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so; start the query again whenever it has ended.

        Raises RuntimeError if it fails again and again.
        """
        end = time.monotonic() + _SECONDS_MAX
        while not is_so():
            if self._job is None:
                self.start()
            elif self._job.has_ended:
                self._take_end()
            elif time.monotonic() > end:
                raise TimeoutError(f"not in {_SECONDS_MAX:.0f} s:\n{self._job.said()}")
            time.sleep(_POLL_S)

    def _take_end(self) -> bool:
        """Note how the run ended; True if it ended well."""
        assert self._job is not None
        code, said = self._job.wait(0), self._job.said()
        self._job = None
        # Spark gives up starting its Python process on a busy machine.
        if code and TOO_SLOW not in said:
            self.failures.append(said)
            if len(self.failures) == _FAILURES_MAX:
                raise RuntimeError(f"the query fails again and again:\n{said}")
        return code == 0


def _count(folder: Path) -> int:
    # Spark keeps the newest hundred files.
    numbers = [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal()]
    return max(numbers, default=-1) + 1
