"""The key index leaves bursts alone, but is never behind for long."""

from __future__ import annotations

from rocketmq_broker.servers.shell.index_turns import LAG_SIZE_MAX, WAIT_SECONDS_MAX, IndexTurns

MIB = 1024 * 1024
STEP_SIZE = 4 * MIB


def waits_of(rate: float, *, seconds: float, step_seconds: float = 0.01) -> tuple[float, int]:
    """How long a byte of the log waits for the index, and how many do, while it grows steadily."""
    now, index_end, longest, most = 0.0, 0, 0.0, 0
    turns = IndexTurns(now, 0)
    while now < seconds:
        end = int(now * rate)
        longest, most = max(longest, now - index_end / rate), max(most, end - index_end)
        if turns.must_wait(now, appended_end=end, index_end=index_end, index_lag=end - index_end):
            now += 0.05
            continue
        index_end = min(end, index_end + STEP_SIZE)
        now += step_seconds
        turns.worked(now, index_end=index_end)
    return longest, most


def test_index_follows_a_quiet_log_at_once() -> None:
    longest, _ = waits_of(1 * MIB, seconds=5)
    assert longest < 0.2


def test_index_of_a_busy_log_is_never_behind_by_two_seconds() -> None:
    for rate in (11 * MIB, 40 * MIB, 150 * MIB):
        longest, most = waits_of(rate, seconds=20)
        assert longest < 2 * WAIT_SECONDS_MAX
        assert most < 2 * LAG_SIZE_MAX


def test_index_leaves_a_burst_alone() -> None:
    turns = IndexTurns(0.0, 0)
    ends = [step * 6 * MIB for step in range(1, 20)]
    assert all(
        turns.must_wait(step * 0.05, appended_end=end, index_end=0, index_lag=end)
        for step, end in enumerate(ends, 1)
    )


def test_index_works_off_what_it_owed_before_it_waits_again() -> None:
    turns = IndexTurns(0.0, 0)
    end = LAG_SIZE_MAX
    assert not turns.must_wait(0.05, appended_end=end, index_end=0, index_lag=end)
    turns.worked(0.06, index_end=end - 1)
    assert not turns.must_wait(0.07, appended_end=end + 9 * MIB, index_end=end - 1, index_lag=1)
    turns.worked(0.08, index_end=end)
    assert turns.must_wait(0.09, appended_end=end + 18 * MIB, index_end=end, index_lag=9 * MIB)
