"""How long something takes on this machine, and whether the machine was quiet meanwhile.

A run beside which the rest of the machine was busy is repeated, at most as often as runs were asked
for. Compared runs alternate, so that a drift of the machine affects all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import psutil

# Cores that others may use beside a run that counts.
OTHERS_CORES_MAX = 0.35

Figures = dict[str, Any]
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Run:
    """One timed run. `value` is what the action returned."""

    seconds: float
    cores_ours: float
    cores_others: float
    value: Any = None

    @property
    def is_quiet(self) -> bool:
        return self.cores_others <= OTHERS_CORES_MAX


def cpu_seconds(root: psutil.Process) -> float:
    """Seconds of CPU that a process and all it started have used."""
    total = 0.0
    try:
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _machine_seconds() -> float:
    times = psutil.cpu_times()
    extra = (getattr(times, name, 0.0) for name in ("nice", "irq", "softirq", "steal"))
    return float(times.user + times.system + sum(extra))


def run_once(action: Callable[[], Any]) -> Run:
    """Time one call; the broker and Spark are our children and count as ours."""
    me = psutil.Process()
    machine, ours, began = _machine_seconds(), cpu_seconds(me), time.perf_counter()
    value = action()
    seconds = time.perf_counter() - began
    ours = cpu_seconds(me) - ours
    machine = _machine_seconds() - machine
    return Run(seconds, ours / seconds, max(machine - ours, 0.0) / seconds, value)


def alternate(
    actions: Mapping[K, Callable[[], Any]],
    *,
    runs: int,
    warm_ups: int = 1,
    prepare: Callable[[K], None] = lambda _: None,
) -> dict[K, list[Run]]:
    """Run the actions by turns until `runs` quiet rounds are had; all rounds count without them.

    `prepare` is called before each, and not timed.
    """

    def timed(name: K) -> Run:
        prepare(name)
        return run_once(actions[name])

    for _ in range(warm_ups):
        for name in actions:
            timed(name)
    rounds: list[dict[K, Run]] = []
    while len(rounds) < 2 * runs and sum(map(_is_quiet, rounds)) < runs:
        rounds.append({name: timed(name) for name in actions})
    quiet = [turn for turn in rounds if _is_quiet(turn)]
    plural = quiet if len(quiet) >= runs else rounds
    return {name: [turn[name] for turn in plural] for name in actions}


def repeat(action: Callable[[], Any], *, runs: int, warm_ups: int = 1) -> list[Run]:
    """Run one action until `runs` quiet runs are had."""
    return alternate({"it": action}, runs=runs, warm_ups=warm_ups)["it"]


def median_seconds(runs: Sequence[Run]) -> float:
    return statistics.median(run.seconds for run in runs)


def rates(rows: int, runs: Sequence[Run]) -> Figures:
    """Figures of rows handled once in each run."""
    median = median_seconds(runs)
    return {
        "krows_s": round(rows / median / 1e3, 1),
        "median_s": round(median, 3),
        "runs_s": [round(run.seconds, 3) for run in runs],
        **quietness(runs),
    }


def quietness(runs: Sequence[Run]) -> Figures:
    """Who used the machine, and whether these runs should be believed."""
    return {
        "cores_ours": round(statistics.median(run.cores_ours for run in runs), 2),
        "cores_others": round(statistics.median(run.cores_others for run in runs), 2),
        "quiet": all(run.is_quiet for run in runs),
    }


def _is_quiet(turn: Mapping[K, Run]) -> bool:
    return all(run.is_quiet for run in turn.values())


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
