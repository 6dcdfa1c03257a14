"""`./run fuzz [--short] [--runs N] [--keep] [TARGET...]`: fuzz targets, one process each.

A finding is written to the folder that its line names, and ends the run with code 1.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from fuzz.corpus import keep, lay_out
from fuzz.targets import TARGETS

RUNS_SHORT: Final = 200_000
SECONDS_SHORT: Final = 60
RUNS: Final = 10_000_000
_DONE: Final = re.compile(r"stat::number_of_executed_units: (\d+)")


def fuzz(name: str, runs: int, folder: Path, flags: list[str]) -> bool:
    """Fuzz one target; True if it found nothing."""
    began = time.monotonic()
    count = lay_out(name, folder / "inputs")
    command = [sys.executable, "-m", "fuzz.worker", name, str(runs), str(folder), *flags]
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    took = time.monotonic() - began
    executed = _DONE.search(ended.stderr)
    if ended.returncode or executed is None:
        (folder / "report.txt").write_text(ended.stdout + ended.stderr)
        lines = (ended.stdout + ended.stderr).splitlines()
        marked = [line for line in lines if "Error" in line or "ERROR" in line or "SUMMARY" in line]
        found = "\n".join(marked[-4:] or lines[-4:])
        print(f"{name}: FOUND in {took:.0f} s, see {folder}/report.txt\n{found}", flush=True)
        return False
    rate = int(executed[1]) / max(took, 0.1)
    inputs = len(list((folder / "inputs").iterdir()))
    print(
        f"{name}: {int(executed[1]):,} inputs in {took:.0f} s ({rate:,.0f}/s), "
        f"corpus {count} -> {inputs}",
        flush=True,
    )
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run fuzz", allow_abbrev=False, description=__doc__)
    parser.add_argument(
        "--short",
        action="store_true",
        help=f"{RUNS_SHORT:,} inputs a target, {SECONDS_SHORT} s at most",
    )
    parser.add_argument("--runs", type=int, help=f"inputs of each target ({RUNS:,})")
    parser.add_argument("--seconds", type=int, help="end each target after this time")
    parser.add_argument("--keep", action="store_true", help="add new inputs to the kept corpus")
    parser.add_argument("target", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    given = parser.parse_args()
    unknown = set(given.target) - set(TARGETS)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    runs = given.runs or (RUNS_SHORT if given.short else RUNS)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    seconds = given.seconds or (SECONDS_SHORT if given.short else 0)
    flags = [f"-max_total_time={seconds}"] if seconds else []
    if given.short:
        # The same inputs at each landing: a new one must not fail an unrelated change.
        flags.append("-seed=1")
    names = given.target or list(TARGETS)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        passed = pool.map(lambda name: fuzz(name, runs, folder / name, flags), names)
        findings = [name for name, is_sound in zip(names, passed, strict=True) if not is_sound]
    if given.keep:
        for name in sorted(set(names) - set(findings)):
            inputs = [path.read_bytes() for path in (folder / name / "inputs").iterdir()]
            print(f"{name}: {keep(name, inputs)} inputs kept")
    # One closing line that continuous integration understands.
    print(f"{len(names) - len(findings)} passed, {len(findings)} failed")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
