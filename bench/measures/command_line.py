"""`rmq` as people wait for it: its help, and a topic's messages printed into a file."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.bed import TRANSPORTS, Bed
from bench.machine import Figures, rates, repeat
from bench.registry import measurement

_MESSAGES_MAX = 1_000_000
_HELPS_EACH = 5
_TIMEOUT_S = 300.0
_FORMS: dict[str, tuple[str, ...]] = {
    "lines": (),
    "format": ("--format", r"%p/%o %T %k %d %s\n"),
    "json": ("--json",),
}


@measurement("command_line", "`rmq --help`, and `rmq tail` of a topic into a file")
def command_line(bed: Bed) -> Iterator[Figures]:
    yield _help(bed.scale.runs * _HELPS_EACH)
    topic = bed.topic(100)
    count = min(_MESSAGES_MAX, bed.scale.messages(100))
    for transport in TRANSPORTS:
        for form, options in _FORMS.items():
            words = ("tail", topic, "--count", str(count), *options, *_where(bed, transport))
            target = bed.directory / "tailed"
            runs = repeat(partial(_run, words, target), runs=bed.scale.runs)
            assert _line_count(target) == count
            yield {"what": "tail", "transport": transport, "form": form, **rates(count, runs)}


def _help(runs: int) -> Figures:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        _run(("--help",), Path("/dev/null"))
        times.append(1_000 * (time.perf_counter() - began))
    return {
        "what": "help",
        "ms": round(statistics.median(times)),
        "ms_min": round(min(times)),
        "runs": runs,
    }


def _where(bed: Bed, transport: str) -> tuple[str, str]:
    if transport == "endpoints":
        return "--endpoints", bed.broker.endpoints
    return "--name-server", bed.broker.name_server


def _line_count(target: Path) -> int:
    with target.open("rb") as printed:
        return sum(block.count(b"\n") for block in iter(lambda: printed.read(1 << 20), b""))


def _run(words: tuple[str, ...], target: Path) -> None:
    """A whole process, with its start."""
    rmq = Path(sys.executable).with_name("rmq")
    with target.open("wb") as out:
        subprocess.run([str(rmq), *words], stdout=out, check=True, timeout=_TIMEOUT_S)
