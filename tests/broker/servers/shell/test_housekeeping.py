"""Background disk work: deletions and their log lines, failures, the pacing of the key index."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from typing import cast

from rocketmq_broker.servers.shell.clock import BrokerClock
from rocketmq_broker.servers.shell.housekeeping import (
    INDEX_LAG_SIZE_MAX,
    INDEX_WAIT_SECONDS_MAX,
    Housekeeping,
    IndexPacing,
    repeat,
)
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.settings import CleanReport
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import BrokerBusyError
from support.engines import EngineUnderTest

MIB = 1024 * 1024
STEP_SIZE = 4 * MIB


class Cleaned:
    """A store that reports deletions which the test chooses."""

    def __init__(self, store, *reports):
        self._store, self._reports = store, iter(reports)

    def __getattr__(self, name):
        return getattr(self._store, name)

    def clean(self, now_ms):
        del now_ms
        return next(self._reports)


def logged_by(caplog, *reports):
    """The level and text of each log line of the broker's cleaning."""

    async def run():
        broker = EngineUnderTest()
        store = Cleaned(broker.store, *reports)
        housekeeping = Housekeeping(broker.engine, cast(Store, store), broker.config, BrokerClock())
        for _ in reports:
            await housekeeping.clean()
        await housekeeping.end()
        housekeeping.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name.endswith("housekeeping")
    ]


def test_the_deletion_of_expired_messages_is_logged(caplog):
    report = CleanReport(log_files=3, log_start=4_096, disk_used_ratio=0.2)
    assert logged_by(caplog, report, CleanReport()) == [
        ("INFO", "deleted 3 files of the log older than retention_hours=72: it begins at 4096 now")
    ]


def test_messages_that_go_early_are_warned_of_each_time(caplog):
    report = CleanReport(log_files=5, early_files=4, log_start=4_096, disk_used_ratio=0.912)
    logged = logged_by(caplog, report, report)
    assert [level for level, _ in logged] == ["INFO", "WARNING"] * 2
    assert logged[0][1].startswith("deleted 1 files of the log older")
    assert logged[1][1] == (
        "the disk was fuller than disk_use_percent_max=90: deleted 4 files of the log that were "
        "NOT older than retention_hours=72, it begins at 4096 now; the disk is 91.2 % full. Make "
        "room, or set a higher disk_use_percent_max"
    )


def test_a_disk_that_is_full_of_other_things_is_warned_of_once(caplog):
    full, well = CleanReport(disk_used_ratio=0.95), CleanReport(disk_used_ratio=0.5)
    logged = logged_by(caplog, full, full, well, full)
    assert [level for level, _ in logged] == ["WARNING", "WARNING"]
    assert "95.0 % full" in logged[0][1]


def pauses_between(monkeypatch, *results):
    """The pauses of repeated work that ends with each of these: an error, or None for success."""
    pauses, left = [], iter(results)

    async def sleep(seconds):
        pauses.append(seconds)

    async def work():
        error = next(left, asyncio.CancelledError())
        if error is not None:
            raise error

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(repeat(0.05, work))
    return pauses


def test_work_that_the_disk_refuses_is_tried_again_after_a_while(monkeypatch):
    results = (None, BrokerBusyError(2, "busy"), None, StorageError("f", 0, "full"), None)
    assert pauses_between(monkeypatch, *results) == [0.05, 0.05, 0.05, 0.05, 1.0, 0.05]


def test_work_outlives_any_exception_and_logs_it(monkeypatch, caplog):
    results = (struct.error("short"), ValueError("no number"), None)
    assert pauses_between(monkeypatch, *results) == [0.05, 1.0, 1.0, 0.05]
    assert [str(record.exc_info[1]) for record in caplog.records] == ["short", "no number"]


def test_a_comparison_that_the_disk_refuses_is_logged(caplog, monkeypatch):
    broker = EngineUnderTest()

    def refuse():
        raise StorageError("commitlog/0", 0, "Input/output error")

    async def run():
        monkeypatch.setattr(broker.store, "verify_step", refuse)
        housekeeping = Housekeeping(broker.engine, broker.store, broker.config, BrokerClock())
        for _ in range(20_000):
            if caplog.records:
                break
            await asyncio.sleep(0.001)
        await housekeeping.end()
        housekeeping.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert "not compared with its checksums any more" in caplog.text


def waits_of(rate: float, *, seconds: float, step_seconds: float = 0.01) -> tuple[float, int]:
    """The longest wait of a byte for the index, and the largest lag, in a growing log."""
    now, index_end, longest, most = 0.0, 0, 0.0, 0
    pacing = IndexPacing(now, 0)
    while now < seconds:
        end = int(now * rate)
        longest, most = max(longest, now - index_end / rate), max(most, end - index_end)
        if pacing.must_wait(now, appended_end=end, index_end=index_end, index_lag=end - index_end):
            now += 0.05
            continue
        index_end = min(end, index_end + STEP_SIZE)
        now += step_seconds
        pacing.worked(now, index_end=index_end)
    return longest, most


def test_index_follows_a_quiet_log_at_once() -> None:
    longest, _ = waits_of(1 * MIB, seconds=5)
    assert longest < 0.2


def test_index_of_a_busy_log_is_never_behind_by_two_seconds() -> None:
    for rate in (11 * MIB, 40 * MIB, 150 * MIB):
        longest, most = waits_of(rate, seconds=20)
        assert longest < 2 * INDEX_WAIT_SECONDS_MAX
        assert most < 2 * INDEX_LAG_SIZE_MAX


def test_index_leaves_a_burst_alone() -> None:
    pacing = IndexPacing(0.0, 0)
    ends = [step * 6 * MIB for step in range(1, 20)]
    assert all(
        pacing.must_wait(step * 0.05, appended_end=end, index_end=0, index_lag=end)
        for step, end in enumerate(ends, 1)
    )


def test_index_works_off_what_it_was_behind_before_it_waits_again() -> None:
    pacing = IndexPacing(0.0, 0)
    end = INDEX_LAG_SIZE_MAX
    assert not pacing.must_wait(0.05, appended_end=end, index_end=0, index_lag=end)
    pacing.worked(0.06, index_end=end - 1)
    assert not pacing.must_wait(0.07, appended_end=end + 9 * MIB, index_end=end - 1, index_lag=1)
    pacing.worked(0.08, index_end=end)
    assert pacing.must_wait(0.09, appended_end=end + 18 * MIB, index_end=end, index_lag=9 * MIB)
