"""No crash loses an acknowledged message, uses an offset twice, leaves a hole or stops a start.

Small lives of a store are run on a disk that can lose power; every operation of each is a crash
point, and at each the disk may have written any part of what was not synced. Then one protection at
a time is switched off: the same check must find a promise that is not kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from rocketmq_broker_sim.storage.settings import FlushMode, StoreConfig
from support.crash_files import (
    Change,
    Crash,
    CrashFiles,
    Density,
    Disk,
    Names,
    Resize,
    Sync,
    Write,
    crashes,
)
from support.storage_histories import TINY, Checker, History, Restarts, Violation

ASYNC = replace(TINY, flush=FlushMode.ASYNC)
WIDE = replace(TINY, segment_size=4096)
USUAL = Density()
FEW = Density(subset_bits=4, samples=6, tears=2)
NO_FILE = -99
"""A sync of this is a sync of nothing."""

Journal = list[Change | Sync]


def few_sends(history: History) -> None:
    """So small that every subset of its unsynced writes can be tried."""
    history.put("orders", 0, b"a")
    history.put("orders", 0, b"b", b"c")


def zeros_in_properties(history: History) -> None:
    """Behind the mark such a record would be taken for torn: it is safe only before it."""
    history.tags = "r\x00d"
    history.put("orders", 0, b"a")
    history.put("orders", 0, b"b")


def sends(history: History) -> None:
    """Over several queues and files of the log; some batches span two."""
    history.put("orders", 0, b"a")
    history.send("orders", 1, b"b", b"c")
    history.put("bills", 0, b"d")
    history.put("orders", 0, b"e" * 200, b"f" * 100)
    history.put("orders", 1, b"g" * 300)
    history.send("bills", 0, b"h")
    history.put("orders", 0, b"i" * 150, b"j" * 150)
    history.send("orders", 0, b"k")


def large_batches(history: History) -> None:
    """Writes of several sectors."""
    history.put("orders", 0, *[bytes([65 + count]) * 150 for count in range(6)])
    history.send("orders", 1, *[bytes([97 + count]) * 200 for count in range(8)])
    history.sync()
    history.send("bills", 0, *[bytes([48 + count]) * 120 for count in range(9)])


def checkpoints(history: History) -> None:
    """Derived files are trusted up to a checkpoint."""
    for count in range(3):
        history.put("orders", 0, b"a%d" % count)
        history.put("orders", 1, b"b%d" % count, b"c%d" % count)
        history.index()
        history.store.checkpoint()
    history.put("bills", 0, b"d")
    history.send("orders", 0, b"e")


def closing(history: History) -> None:
    """A clean end."""
    history.put("orders", 0, b"a")
    history.put("bills", 0, b"b")
    history.index()
    history.store.close()


def deletions(history: History) -> None:
    """A topic is deleted and made again, twice, with checkpoints around it."""
    history.create("orders")
    history.create("bills")
    history.put("orders", 0, b"old-a", b"old-b")
    history.put("bills", 0, b"kept")
    history.store.checkpoint()
    history.send("orders", 0, b"old-c")
    history.delete("orders")
    history.create("orders")
    history.put("orders", 0, b"new-a")
    history.store.checkpoint()
    history.put("orders", 1, b"new-b")
    history.delete("orders")
    history.create("orders")
    history.put("orders", 0, b"third")


def retention(history: History) -> None:
    """Old files of the log, then of the queues, go."""
    for count in range(5):
        history.put("orders", 0, b"%d" % count * 250)
        history.put("bills", 0, b"%d" % count * 100)
        if count == 2:
            history.put("orders", 1, b"expires")
            history.store.checkpoint()
    history.clean()
    history.put("orders", 0, b"after")
    history.clean()


def asynchronous(history: History) -> None:
    """Visible at once, safe after the next flush."""
    for count in range(6):
        history.send("orders", count % 2, b"%d" % count * 60)
        history.store.publish()
        if count % 2:
            history.sync()
    history.store.checkpoint()
    history.send("bills", 0, b"last")
    history.store.publish()


@dataclass(frozen=True)
class Case:
    """A history, and how many distinct disk states of it are tried at least."""

    run: Callable[[History], None]
    states_min: int
    density: Density = USUAL
    config: StoreConfig = TINY


def sends_together(history: History) -> None:
    """Several sends in one write; some of them synced before others of their queue."""
    history.put("orders", 0, b"a")
    history.send_together("orders", (0, [b"b"]), (1, [b"c", b"d"]), (0, [b"e"]))
    history.sync()
    history.send_together("orders", (1, [b"f"]), (0, [b"g"]))
    history.put("orders", 1, b"h")


CASES = {
    "few_sends": Case(few_sends, 300, Density(subset_bits=12, tears=60)),
    "zeros_in_properties": Case(zeros_in_properties, 100),
    "sends": Case(sends, 1_900),
    "sends_together": Case(sends_together, 400, Density(tears=25), WIDE),
    "large_batches": Case(large_batches, 1_300, Density(tears=25), WIDE),
    "checkpoints": Case(checkpoints, 1_000, Density(subset_bits=9, samples=100, tears=20)),
    "closing": Case(closing, 450, Density(subset_bits=10, samples=60, tears=20)),
    "deletions": Case(deletions, 950, Density(subset_bits=9, samples=150, tears=20)),
    "retention": Case(retention, 1_900),
    "asynchronous": Case(asynchronous, 1_300, Density(samples=40), ASYNC),
}
STATES_MIN = 20_000


def live(case: Case) -> History:
    """The case's history, run to its end."""
    history = History(config=case.config)
    case.run(history)
    return history


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
    """What a store does after a crash, and the life before it."""

    first: Case
    run: Callable[[History], None]
    states_min: int
    crash_count: int = 40
    density: Density = FEW


def send_more(history: History) -> None:
    """Records as large as those that the crash may have left behind."""
    history.put("orders", 0, b"z")
    history.send("orders", 1, b"y")
    history.store.checkpoint()


def create_and_send(history: History) -> None:
    """The topics may have been deleted."""
    history.create("orders")
    history.put("orders", 0, b"again")


SECOND_LIVES = {
    "after_sends": SecondLife(CASES["sends"], send_more, 5_200, 12),
    "after_checkpoints": SecondLife(CASES["checkpoints"], send_more, 3_900, 40),
    "after_deletions": SecondLife(CASES["deletions"], create_and_send, 1_100, 40),
    "after_retention": SecondLife(CASES["retention"], send_more, 2_000, 6),
    "after_asynchronous": SecondLife(CASES["asynchronous"], send_more, 1_500, 6),
}


@pytest.mark.slow
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


# --- what each protection is for ----------------------------------------------------------------


def from_the_start(_: History) -> int:
    """The journal's first point."""
    return 0


def once_open(history: History) -> int:
    """The point from which on the store was open."""
    return history.opened_at


def once_cleaning(history: History) -> int:
    """The point at which the first files expired."""
    return history.promises.cleanings[0][0].started_at


def without_sync(
    pattern: str, since: Callable[[History], int] = once_open
) -> Callable[[History], Journal]:
    """A disk that does not sync some files, or directories (their names end with a slash)."""

    def change(history: History) -> Journal:
        files, journal = history.files, []
        for index, operation in enumerate(files.journal):
            if isinstance(operation, Sync) and index >= since(history):
                name = (
                    operation.target + "/"
                    if isinstance(operation.target, str)
                    else files.first_names[operation.target]
                )
                if re.fullmatch(pattern, name):
                    operation = Sync(NO_FILE)
            journal.append(operation)
        return journal

    return change


def mark_before_log(history: History) -> Journal:
    """The mark is synced first, then the log that it speaks of."""
    names, journal = history.files.first_names, list(history.files.journal)
    waiting: list[int] = []
    for index, operation in enumerate(journal):
        if not isinstance(operation, Sync) or isinstance(operation.target, str):
            continue
        name = names[operation.target]
        if name.startswith("commitlog/"):
            waiting.append(index)
        elif name == "durable.mark" and waiting:
            log, mark = journal[waiting[-1]], operation
            # The write of the mark comes first, then its sync, then the log's.
            moved = [*journal[waiting[-1] + 1 : index], mark, log]
            journal[waiting[-1] : index + 1] = moved
            waiting = []
    return journal


def without_dead_positions(history: History) -> Journal:
    """Deletions are stored, but not up to where they reach."""

    def change(operation: Change | Sync) -> Change | Sync:
        if not isinstance(operation, Write) or b'"deadBefore"' not in operation.data:
            return operation
        data = re.sub(
            rb'("deadBefore": \{)([^}]*)', lambda m: m[1] + b" " * len(m[2]), operation.data
        )
        return replace(operation, data=data)

    return [change(operation) for operation in history.files.journal]


def without_clearing(history: History) -> Journal:
    """The log's torn tail is not cleared by the start."""
    names = history.files.first_names
    return [
        Sync(NO_FILE)
        if isinstance(operation, Resize)
        and names[operation.inode].startswith("commitlog/")
        and index < history.opened_at
        else operation
        for index, operation in enumerate(history.files.journal)
    ]


def without_clamped_positions(history: History) -> Journal:
    """A start leaves dead positions that are past the log's new end."""
    return [
        Sync(NO_FILE)
        if isinstance(operation, Names)
        and operation.directory == "config"
        and index < history.opened_at
        else operation
        for index, operation in enumerate(history.files.journal)
    ]


def published_early(history: History) -> None:
    """Readers see messages before they are on the disk."""
    history.send("orders", 0, b"a")
    history.publish()
    history.sync()


def torn_then_sent(_: History) -> Iterator[History]:
    """A start that finds the first of two unsynced records torn, and writes one of its size."""
    before = History()
    before.put("orders", 0, b"a")
    before.send("orders", 0, b"x")
    before.send("orders", 0, b"y")
    yield from _after_losing_first_tail_write(before, send_more)


def deleted_then_created(_: History) -> Iterator[History]:
    """A topic is deleted behind records that the crash takes, and made again."""
    before = History()
    before.create("orders")
    before.put("orders", 0, b"a")
    before.send("bills", 0, b"lost" * 20)
    before.delete("orders")
    before.create("orders")
    yield from _after_losing_first_tail_write(before, send_more)


def _after_losing_first_tail_write(
    before: History, run: Callable[[History], None]
) -> Iterator[History]:
    disk = Disk(before.files.base)
    for operation in before.files.journal:
        disk.step(operation)
    names = before.files.first_names
    tail = [
        change
        for change in disk.pending
        if isinstance(change, Write) and names[change.inode].startswith("commitlog/")
    ]
    kept = [change for change in disk.pending if change is not tail[0]]
    history = History.reopened(Crash(before.point, disk.state_with(kept)), before)
    assert history is not None
    run(history)
    yield history


def whole(case: Case) -> Callable[[History], Iterator[History]]:
    """A case from its beginning."""

    def run(_: History) -> Iterator[History]:
        yield live(case)

    return run


PROTECTIONS: dict[
    str, tuple[Callable[[History], Iterator[History]], Callable[[History], Journal]]
] = {
    "the log is synced": (whole(CASES["few_sends"]), without_sync("commitlog/[0-9]+")),
    "the mark is synced": (
        whole(CASES["zeros_in_properties"]),
        without_sync("durable.mark"),
    ),
    "the mark follows the log": (whole(CASES["few_sends"]), mark_before_log),
    "the log's directory is synced": (whole(CASES["sends"]), without_sync("commitlog/")),
    "the root directory is synced": (whole(CASES["few_sends"]), without_sync("/", from_the_start)),
    "seals are synced": (whole(CASES["sends"]), without_sync("log.seals")),
    "queues are synced before a checkpoint": (
        whole(CASES["checkpoints"]),
        without_sync("consumequeue/.*/[0-9]+"),
    ),
    "new configuration is synced before its rename": (
        whole(CASES["deletions"]),
        without_sync("config/.*"),
    ),
    "the configuration's directory is synced": (
        whole(CASES["deletions"]),
        without_sync("config/"),
    ),
    "the log's new start is synced before files go": (
        whole(CASES["retention"]),
        without_sync("durable.mark", once_cleaning),
    ),
    "deletions say how far they reach": (whole(CASES["deletions"]), without_dead_positions),
    "a torn tail is cleared": (torn_then_sent, without_clearing),
    "dead positions end with the log": (deleted_then_created, without_clamped_positions),
    "messages are visible only once durable": (
        whole(Case(published_early, 1, config=ASYNC)),
        lambda history: history.files.journal,
    ),
}


def first_violation(history: History, journal: Journal) -> Violation | None:
    """What the checker finds on a disk that wrote this journal."""
    files = CrashFiles.of(history.files.base)
    files.journal = journal
    checker = Checker(history)
    try:
        for crash in crashes(files):
            checker.check(crash)
    except Violation as violation:
        return violation
    return None


@pytest.mark.slow
@pytest.mark.parametrize("name", PROTECTIONS)
def test_without_one_protection_the_check_fails(name: str) -> None:
    lives, fault = PROTECTIONS[name]
    (history,) = lives(History())
    assert first_violation(history, fault(history)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("lives", [torn_then_sent, deleted_then_created])
def test_with_the_protection_the_check_passes(
    lives: Callable[[History], Iterator[History]],
) -> None:
    (history,) = lives(History())
    assert first_violation(history, history.files.journal) is None
