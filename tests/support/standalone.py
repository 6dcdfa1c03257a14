"""A Spark standalone cluster on loopback: one master, workers as processes of their own."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pyspark

# Generous: a machine may be busy with other things.
_SECONDS_MAX = 300
_JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_DEPLOY = "org.apache.spark.deploy"


class StandaloneCluster:
    """Use it in `with`. Executors run what `environment` says, beside this process's own."""

    def __init__(
        self, folder: Path, worker_count: int = 2, environment: dict[str, str] | None = None
    ) -> None:
        self.master = ""
        self.workers: list[subprocess.Popen[bytes]] = []
        self._folder = folder
        self._worker_count = worker_count
        self._home = Path(pyspark.__file__).parent
        self._environment = {
            **os.environ,
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # What Spark's own scripts say: executors look for their jars by it.
            "SPARK_SCALA_VERSION": "2.13",
            **(environment or {}),
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> StandaloneCluster:
        try:
            self._start("master", "master.Master", "--port", "0")
            self.master = self._said("master", r"Starting Spark master at (spark://\S+)")
            for number in range(self._worker_count):
                self.add_worker(f"worker-{number}")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def add_worker(self, name: str) -> None:
        """Start one more worker, with one core and its own folder."""
        words = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / name))
        self.workers.append(self._start(name, "worker.Worker", *words, self.master))
        self._said(name, r"Successfully registered with master (\S+)")

    def kill_worker(self, number: int) -> None:
        """Kill a worker and the executor and Python processes below it, as a dead machine would."""
        worker = self.workers[number]
        descendants = _descendants(worker.pid)
        for process in [worker.pid, *descendants]:
            _kill(process)
        worker.wait(10)

    def close(self) -> None:
        """End what runs still."""
        for process in reversed(self._processes):
            below = _descendants(process.pid) if process.poll() is None else []
            process.kill()
            process.wait(10)
            for pid in below:
                _kill(pid)

    def _start(self, name: str, service: str, *words: str) -> subprocess.Popen[bytes]:
        command = [
            *_JAVA,
            "-cp",
            f"{self._home / 'jars'}/*",
            f"{_DEPLOY}.{service}",
            *("--host", "127.0.0.1", "--webui-port", "0"),
            *words,
        ]
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=self._environment, cwd=self._folder
            )
        self._processes.append(process)
        return process

    def _said(self, name: str, pattern: str) -> str:
        log = self._folder / f"{name}.log"
        deadline = time.monotonic() + _SECONDS_MAX
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found.group(1)
            time.sleep(0.05)
        raise AssertionError(f"{name} did not start: {log.read_text(errors='replace')[-2_000:]}")


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 9)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for child in _children(pid):
        found += [child, *_descendants(child)]
    return found


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return []
    children: list[int] = []
    for task in tasks:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children += [int(word) for word in (task / "children").read_text().split()]
    return children
