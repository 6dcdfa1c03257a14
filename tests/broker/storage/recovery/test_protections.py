"""Each protection of the store is needed: without it some crash breaks a promise.

Each test switches off one protection, and expects the check to fail, which else passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from support.crash_cases import ASYNC, CASES, Case, live, send_more
from support.crash_files import Change, Crash, CrashFiles, Disk, Names, Resize, Sync, Write, crashes
from support.storage_histories import Checker, History, Violation

NO_FILE = -99
"""Number of no file: syncing it has no effect."""

Journal = list[Change | Sync]


def from_the_start(_: History) -> int:
    """The journal's first point."""
    return 0


def once_open(history: History) -> int:
    """The point at which the store was open."""
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
    """The mark is synced before the log up to it."""
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
    """Deletions are stored without the log position up to which records are dead."""

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
    """A start keeps dead positions behind the log's new end."""
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
    """A start finds the first of two unsynced records torn, and writes another of its size."""
    before = History()
    before.put("orders", 0, b"a")
    before.send("orders", 0, b"x")
    before.send("orders", 0, b"y")
    yield from _after_losing_first_tail_write(before, send_more)


def deleted_then_created(_: History) -> Iterator[History]:
    """A topic is deleted behind records that the crash loses, and created again."""
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


def expired(history: History) -> None:
    """A queue whose messages have all expired: only the checkpoint has its next offset."""
    history.put("orders", 1, b"expires")
    for count in range(5):
        history.put("orders", 0, b"%d" % count * 250)
    history.store.checkpoint()
    history.clean()


LOST_CHECKPOINT = r"derived\.json.*"
LOST_QUEUES = "consumequeue/(.*/)?"


def after_losing(
    lost: str, point: Callable[[History], int]
) -> Callable[[History], Iterator[History]]:
    """A history that begins after some files, or names in directories, were lost."""

    def run(_: History) -> Iterator[History]:
        before = History()
        expired(before)
        end, disk = point(before), Disk(before.files.base)
        for operation in without_sync(lost)(before)[:end]:
            disk.step(operation)

        def name(change: Change) -> str:
            if isinstance(change, Names):
                return change.directory + "/"
            return before.files.first_names[change.inode]

        kept = [change for change in disk.pending if not re.fullmatch(lost, name(change))]
        assert len(kept) < len(disk.pending)
        history = History.reopened(Crash(end, disk.state_with(kept)), before)
        assert history is not None
        send_more(history)
        yield history

    return run


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
    "log checksums are synced": (whole(CASES["sends"]), without_sync("log.seals")),
    "new configuration is synced before its rename": (
        whole(CASES["deletions"]),
        without_sync("config/.*"),
    ),
    "the configuration's directory is synced": (
        whole(CASES["deletions"]),
        without_sync("config/"),
    ),
    "the log's new start is synced before files are deleted": (
        whole(CASES["retention"]),
        without_sync("durable.mark", once_cleaning),
    ),
    "deletions store their log position": (whole(CASES["deletions"]), without_dead_positions),
    "a torn tail is cleared": (torn_then_sent, without_clearing),
    "dead positions end with the log": (deleted_then_created, without_clamped_positions),
    "checkpoints are synced": (
        after_losing(LOST_CHECKPOINT, lambda before: before.point),
        without_sync(LOST_CHECKPOINT, from_the_start),
    ),
    "messages are visible only once durable": (
        whole(Case(published_early, 1, config=ASYNC)),
        lambda history: history.files.journal,
    ),
}


def first_violation(history: History, journal: Journal) -> Violation | None:
    """The first violation that the checker finds on a disk that wrote this journal."""
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
@pytest.mark.parametrize(
    "lives",
    [
        torn_then_sent,
        deleted_then_created,
        after_losing(LOST_CHECKPOINT, lambda before: before.point),
        after_losing(LOST_QUEUES, once_cleaning),
        after_losing(LOST_QUEUES, lambda before: before.point),
    ],
    ids=["torn", "deleted", "checkpoint lost", "queues lost", "queues lost after expiry"],
)
def test_with_the_protection_the_check_passes(
    lives: Callable[[History], Iterator[History]],
) -> None:
    (history,) = lives(History())
    assert first_violation(history, history.files.journal) is None
