"""The runs of the job stream_to_parquet on one checkpoint, each of which can be killed."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from bench.accounting.submitted import ROOT, Job, spark_submit
from bench.streaming import TOO_SLOW

_POLL_S = 0.05


class Reader:
    """spark-submit with its JVM and Python workers, one run after the other."""

    def __init__(self, directory: Path, topic: str) -> None:
        self.output = directory / "output"
        self.log_path = directory / "reader.log"
        self._directory = directory
        self._arguments = [
            *("--topic", topic, "--group", "accounting"),
            *("--output", str(self.output), "--checkpoint", str(directory / "checkpoint")),
        ]
        self._job: Job | None = None

    def start(
        self, connection: tuple[str, str], *, limit: int, tasks: int, available_now: bool = False
    ) -> None:
        """Start a run that takes at most `limit` messages a batch, in at most `tasks` tasks.

        `connection` is the job's option that leads to the broker, and its value.
        """
        trigger = "available-now" if available_now else "0 seconds"
        command = [
            *spark_submit(ROOT / "spark_jobs" / "stream_to_parquet.py", self._directory / "spark"),
            *connection,
            *self._arguments,
            *("--trigger", trigger, "--max-offsets-per-trigger", str(limit)),
            *("--max-partitions", str(tasks)),
        ]
        self._job = Job(command, self.log_path)

    def wait_for_batches(self, count: int, *, timeout_s: float = 300.0) -> None:
        """Wait until this many more batches are finished than when it was called.

        Returns early when Spark gave up starting its Python process, as it does on a busy machine.
        Raises RuntimeError when the reader failed for any other reason.
        """
        wanted = len(self.finished_batches()) + count
        give_up_at = time.monotonic() + timeout_s
        while len(self.finished_batches()) < wanted:
            if self.has_ended:
                self._accept_end(timeout_s=0)
                return
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"no {count} batches in {timeout_s} s; see {self.log_path}")
            time.sleep(_POLL_S)

    def finished_batches(self) -> list[int]:
        folder = self._directory / "checkpoint" / "commits"
        return sorted(int(p.name) for p in folder.glob("[0-9]*")) if folder.exists() else []

    @property
    def has_ended(self) -> bool:
        return self._job is None or self._job.has_ended

    def wait(self, *, timeout_s: float) -> bool:
        """Wait for its own end; False if Spark was too slow to start. Raises RuntimeError."""
        return self._accept_end(timeout_s=timeout_s)

    def _accept_end(self, *, timeout_s: float) -> bool:
        assert self._job is not None
        job, code = self._job, self._job.wait(timeout_s)
        self._job = None
        said = job.said()
        if code and TOO_SLOW not in said:
            raise RuntimeError(f"the reader failed with {code}:\n{said}")
        return code == 0

    def stop(self) -> None:
        """Ask it to end, as an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the JVM, the driver and every worker at once, without a last word."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._job is not None:
            self._job.end(number)
            self._job = None
