"""From the command `rmq serve` to the file that says it serves, on a new directory and again."""

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


@measurement("startup", "from `rmq serve` to its ready file")
def startup(bed: Bed) -> Iterator[Figures]:
    seconds: dict[str, list[float]] = {"new directory": [], "the same again": [], "memory": []}
    for number in range(bed.scale.runs * _RUNS_EACH):
        folder = bed.directory / f"startup{number}"
        folder.mkdir()
        data = ("--data-dir", str(folder / "data"))
        seconds["new directory"].append(_start(folder, *data))
        seconds["the same again"].append(_start(folder, *data))
        seconds["memory"].append(_start(folder, "--memory"))
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
