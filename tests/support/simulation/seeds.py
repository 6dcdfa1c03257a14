"""`./run simulate`: lives of a simulated broker, one a seed; prints those that break a promise."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context

from support.simulation.life import Life

OPERATIONS = 200
SHORT_SEEDS = 300
_SHORT_PROCESSES = 2
_REPORT_SECONDS = 60


@dataclass(frozen=True)
class Failure:
    """A seed that broke a promise, and the end of its life."""

    seed: int
    text: str


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    seeds, began = args.seeds, time.monotonic()
    reported, failed = began, 0
    print(f"simulate: {len(seeds)} seeds of {args.operations} operations", file=sys.stderr)
    jobs = [(seed, args.operations) for seed in seeds]
    for done, failure in enumerate(_results(jobs, args.processes), 1):
        if failure is not None:
            failed += 1
            print(f"\n=== seed {failure.seed}\n{failure.text}", flush=True)
            again = f"--seeds {failure.seed} --operations {args.operations}"
            print(f"=== again: ./run simulate {again}", flush=True)
        if time.monotonic() - reported > _REPORT_SECONDS:
            reported = time.monotonic()
            print(f"simulate: {done} of {len(seeds)} seeds, {failed} failed", file=sys.stderr)
    seconds = time.monotonic() - began
    print(f"simulate: {len(seeds)} seeds in {seconds:.0f} s, {failed} broke a promise")
    return 1 if failed else 0


def _results(jobs: list[tuple[int, int]], processes: int) -> Iterator[Failure | None]:
    if processes == 1:
        yield from map(run_seed, jobs)
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(run_seed, jobs, chunksize=4)


def run_seed(job: tuple[int, int]) -> Failure | None:
    """Run one life; None if it kept every promise."""
    seed, operations = job
    life = Life(seed, operations)
    try:
        life.run()
    except Exception:  # noqa: BLE001 - whatever ends a life is a finding
        last = "\n".join(life.notes)
        return Failure(seed, f"last operations:\n{last}\n{traceback.format_exc()}")
    return None


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run simulate", description=__doc__)
    parser.add_argument(
        "--short", action="store_true", help=f"{SHORT_SEEDS} seeds, in two processes"
    )
    parser.add_argument("--seeds", type=_seeds, metavar="A-B", help="these seeds, or a single one")
    parser.add_argument("--operations", type=int, default=OPERATIONS, metavar="N")
    parser.add_argument("--processes", type=int, default=0, metavar="N", help="default: 1")
    args = parser.parse_args(argv)
    args.seeds = args.seeds or range(SHORT_SEEDS)
    args.processes = args.processes or (_SHORT_PROCESSES if args.short else 1)
    return args


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)
