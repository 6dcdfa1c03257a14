"""From `rmq serve` to the file that says it serves, and from a pytest fixture to its broker."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.bed import Bed
from bench.machine import Figures
from bench.registry import measurement

_RUNS_EACH = 3
_TIMEOUT_S = 60.0
_LOOK_EACH_S = 0.002
_FIXTURES = {"fixture in process": "rocketmq", "fixture as a server": "rocketmq_server"}
# Around the set-up of a session's first test: imports, the broker's start, a handle on it.
_TIMING = """
import pathlib, time, pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup():
    began = time.perf_counter()
    yield
    pathlib.Path("seconds").write_text(str(time.perf_counter() - began))
"""


@measurement("startup", "from `rmq serve` to its ready file, and pytest's fixtures to their broker")
def startup(bed: Bed) -> Iterator[Figures]:
    seconds: dict[str, list[float]] = {"new directory": [], "the same again": [], "memory": []}
    for number in range(bed.scale.runs * _RUNS_EACH):
        folder = bed.directory / f"startup{number}"
        folder.mkdir()
        data = ("--data-dir", str(folder / "data"))
        seconds["new directory"].append(_start(folder, *data))
        seconds["the same again"].append(_start(folder, *data))
        seconds["memory"].append(_start(folder, "--memory"))
        for what, fixture in _FIXTURES.items():
            seconds.setdefault(what, []).append(_set_up(folder / fixture, fixture))
    for what, times in seconds.items():
        yield {
            "what": what,
            "ms": round(1_000 * statistics.median(times)),
            "ms_min": round(1_000 * min(times)),
            "ms_max": round(1_000 * max(times)),
            "runs": len(times),
        }


def _start(folder: Path, *options: str) -> float:
    """Seconds until it serves; it is ended again."""
    ready = folder / "ready.json"
    rmq = Path(sys.executable).with_name("rmq")
    command = [str(rmq), "serve", "--port", "0", "--ready-file", str(ready), *options]
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
    ) as process:
        try:
            while not ready.exists():
                if process.poll() is not None or time.perf_counter() - began > _TIMEOUT_S:
                    raise RuntimeError(f"{' '.join(command)} did not serve")
                time.sleep(_LOOK_EACH_S)
            return time.perf_counter() - began
        finally:
            process.terminate()
            process.wait(_TIMEOUT_S)


def _set_up(folder: Path, fixture: str) -> float:
    """Seconds that pytest takes to set up the first test of a session that asks for a fixture."""
    folder.mkdir()
    (folder / "conftest.py").write_text(_TIMING)
    (folder / "test_it.py").write_text(f"def test_it({fixture}):\n    assert {fixture}.options\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if ended.returncode:
        raise RuntimeError(f"the fixture {fixture} did not come about: {ended.stdout}")
    return float((folder / "seconds").read_text())
