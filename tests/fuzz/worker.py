"""Fuzzes one target in this process, guided by coverage: TARGET RUNS FOLDER [FLAG...].

Ends with a code other than 0 at the first finding, which libFuzzer leaves in the folder.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import atheris

with atheris.instrument_imports(
    include=["rocketmq_wire", "rocketmq_arrow", "rocketmq_broker.security", "pyspark_rocketmq"]
):
    from fuzz.targets import TARGETS, Target

CPU_S_MAX: Final = 1.0
"""The longest time of one input: no peer may hold a thread for longer."""
GROWTH_KIB_MAX: Final = 64 * 1024
"""The most memory beyond what was used before."""
_WARM_UP: Final = 200
"""Inputs before memory counts: what is loaded at first use is no growth by an input."""
_RSS_MB_MAX: Final = 2_048
_HANG_S: Final = 60


class FoundError(Exception):
    """An input takes too long or too much memory."""


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Runner:
    """Runs inputs of a target, and measures each."""

    def __init__(self, target: Target, peak_kib: Callable[[], int] = peak_kib) -> None:
        self._target = target
        self._peak_of_process = peak_kib
        self._count = 0
        self._peak_kib = 0

    def __call__(self, data: bytes) -> None:
        began = time.process_time()
        with contextlib.suppress(*self._target.declared):
            self._target.run(data)
        seconds = time.process_time() - began
        if seconds > CPU_S_MAX:
            raise FoundError(f"{seconds:.1f} s of CPU for {len(data)} bytes")
        self._count += 1
        peak = self._peak_of_process()
        if self._count > _WARM_UP and peak - self._peak_kib > GROWTH_KIB_MAX:
            raise FoundError(f"{peak - self._peak_kib} KiB more memory for {len(data)} bytes")
        self._peak_kib = peak


def main() -> None:
    name, runs, folder = sys.argv[1:4]
    target = TARGETS[name]
    inputs = Path(folder) / "inputs"
    flags = [
        *(f"-runs={runs}", f"-max_len={target.size_max}", f"-timeout={_HANG_S}"),
        *(f"-rss_limit_mb={_RSS_MB_MAX}", f"-artifact_prefix={folder}/", "-print_final_stats=1"),
        *("-len_control=20", *sys.argv[4:]),
    ]
    atheris.Setup([name, *flags, str(inputs)], Runner(target))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
