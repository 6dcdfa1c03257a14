"""No crash loses an acknowledged message, uses an offset twice, leaves a hole or stops a start.

Small lives of a store are run on a disk that can lose power; every operation of each is a crash
point, and at each the disk may have written any part of what was not synced. That the check finds
broken promises is shown in `test_storage_protections.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from support.crash_cases import CASES, FEW, Case, live, send_more
from support.crash_files import (
    Crash,
    Density,
    Disk,
    Write,
    crashes,
)
from support.storage_histories import Checker, History, Restarts

STATES_MIN = 50_000


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_crash_keeps_every_promise(name: str) -> None:
    case = CASES[name]
    history = live(case)
    checker = Checker(history)
    for crash in crashes(history.files, case.density):
        checker.check(crash)
    assert len(checker.restarts) >= case.states_min


def test_the_cases_try_enough_states() -> None:
    states = [case.states_min for case in CASES.values()]
    states += [life.states_min for life in SECOND_LIVES.values()]
    assert sum(states) >= STATES_MIN


# --- a crash of a store that a crash had stopped before ---------------------------------------


def spread(case: Case, count: int) -> tuple[History, list[Crash]]:
    """A history and some of its crashes, spread over all."""
    history = live(case)
    states: dict[int, Crash] = {}
    for crash in crashes(history.files, Density(samples=6, tears=2)):
        states.setdefault(hash((crash.state, crash.point)), crash)
    found = list(states.values())
    step = max(1, len(found) // count)
    return history, found[::step]


@dataclass(frozen=True)
class SecondLife:
    """The requests of a store after a crash, and the history before it."""

    first: Case
    run: Callable[[History], None]
    states_min: int
    crash_count: int = 40
    density: Density = FEW


def create_and_send(history: History) -> None:
    """The topics may have been deleted."""
    history.create("orders")
    history.put("orders", 0, b"again")


SECOND_LIVES = {
    "after_sends": SecondLife(CASES["sends"], send_more, 8_600, 20),
    "after_sends_together": SecondLife(CASES["sends_together"], send_more, 2_900, 30),
    "after_large_batches": SecondLife(CASES["large_batches"], send_more, 5_300, 20),
    "after_checkpoints": SecondLife(CASES["checkpoints"], send_more, 6_200, 80),
    "after_closing": SecondLife(CASES["closing"], send_more, 1_950, 40),
    "after_deletions": SecondLife(CASES["deletions"], create_and_send, 2_200, 140),
    "after_retention": SecondLife(CASES["retention"], send_more, 4_350, 14),
    "after_asynchronous": SecondLife(CASES["asynchronous"], send_more, 4_150, 30),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SECOND_LIVES)
def test_a_crash_while_recovering_or_after_it_keeps_every_promise(name: str) -> None:
    life = SECOND_LIVES[name]
    before, found = spread(life.first, life.crash_count)
    restarts = Restarts(life.first.config)
    for crash in found:
        history = History.reopened(crash, before)
        if history is None:
            continue
        life.run(history)
        checker = Checker(history, restarts)
        for again in crashes(history.files, life.density):
            checker.check(again)
    assert len(restarts) >= life.states_min


# --- every byte ---------------------------------------------------------------------------------


def test_the_unsynced_tail_may_be_cut_at_every_byte() -> None:
    history = History()
    history.put("orders", 0, b"a")
    history.send("orders", 0, b"b", b"c" * 30, b"d")
    disk = Disk(history.files.base)
    for operation in history.files.journal:
        disk.step(operation)
    checker = Checker(history)
    batch = [change for change in disk.pending if isinstance(change, Write)][-1]
    assert history.files.first_names[batch.inode].startswith("commitlog/")
    for cut in range(len(batch.data) + 1):
        torn = replace(batch, data=batch.data[:cut])
        checker.check(Crash(history.point, disk.state_with([*disk.pending[:-1], torn])))
    assert len(checker.restarts) > len(batch.data) // 2
