"""Runs on a busy machine are repeated, and what is compared runs by turns."""

from __future__ import annotations

import pytest

from bench import machine
from bench.machine import Run, alternate, percentile, rates


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Cores that others use beside the runs to come, the next one last."""
    cores: list[float] = []

    def run_once(action: object) -> Run:
        assert callable(action)
        return Run(1.0, 1.0, cores.pop() if cores else 0.0, action())

    monkeypatch.setattr(machine, "run_once", run_once)
    return cores


def test_actions_take_turns_after_a_warm_up(others: list[float]) -> None:
    done: list[str] = []
    alternate({"a": lambda: done.append("a"), "b": lambda: done.append("b")}, runs=2)
    assert done == ["a", "b"] * 3
    assert others == []


def test_a_round_beside_a_busy_machine_is_repeated(others: list[float]) -> None:
    others[:] = [0.0, 2.0]
    numbers = iter(range(10))
    measured = alternate({"it": lambda: next(numbers)}, runs=2, warm_ups=0)
    assert [run.value for run in measured["it"]] == [1, 2]


def test_a_machine_that_is_never_quiet_gives_all_its_runs_and_says_so(others: list[float]) -> None:
    others[:] = [2.0] * 10
    measured = alternate({"it": lambda: None}, runs=2, warm_ups=0)
    assert len(measured["it"]) == 4
    assert rates(1_000, measured["it"])["quiet"] is False


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1.0)) == (
        51.0,
        100.0,
        100.0,
    )
