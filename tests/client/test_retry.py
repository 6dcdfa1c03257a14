"""Retry policies, their delays, the outage clock of downloads, and the loop on a fake clock."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client import retry_schedules
from rocketmq_client.retry import Backoff, OutageClock, Retry, RetryPolicy
from rocketmq_client.retry_schedules import REQUEST
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import (
    BrokerBusyError,
    ConnectError,
    DeadlineExceededError,
    NotAuthorizedError,
    RocketMQError,
)
from rocketmq_wire.model import QueueId
from support.fake_clock import FakeClock

AWAY = ConnectError("h:1", "away")
BUSY = BrokerBusyError(2, "busy")
QUEUE = QueueId("orders", "broker-a", 3)
_LOG = logging.getLogger("pyspark_rocketmq")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


# --- policies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "numbers",
    [
        {"first_delay_ms": 0, "delay_ms_max": 10},
        {"first_delay_ms": 11, "delay_ms_max": 10},
        {"first_delay_ms": 1, "delay_ms_max": 10, "jitter": 1},
        {"first_delay_ms": 1, "delay_ms_max": 10, "factor": 0},
    ],
)
def test_numbers_that_are_no_policy_are_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="not a"):
        RetryPolicy(**numbers)  # type: ignore[arg-type]


def test_a_limit_of_the_user_also_shortens_the_first_pause() -> None:
    policy = RetryPolicy(500, 500).within(60_000, 200)
    assert (policy.first_delay_ms, policy.delay_ms_max, policy.limit_ms) == (200, 200, 60_000)
    settings = ConnectionSettings(("h:1",), outage_ms=7_000, retry_delay_ms_max=300)
    assert settings.over_outage(retry_schedules.TASK).limit_ms == 7_000
    assert settings.over_outage(retry_schedules.TASK).delay_ms_max == 300
    assert settings.request_retry == RetryPolicy(100, 300, limit_ms=7_000)


# --- delays -----------------------------------------------------------------------------------


@given(st.integers(1, 1_000), st.integers(0, 100_000), st.integers())
def test_delays_grow_to_the_limit_and_never_beyond(first_ms: int, more_ms: int, seed: int) -> None:
    policy = RetryPolicy(first_ms, first_ms + more_ms)
    backoff = Backoff(policy, random.Random(seed).randint)
    delays = [backoff.next_delay_ms() for _ in range(60)]
    assert all(1 <= delay <= first_ms + more_ms for delay in delays)
    assert delays[-1] >= (first_ms + more_ms) * 3 // 4
    backoff.reset()
    assert backoff.next_delay_ms() <= first_ms


def test_equal_seeds_give_equal_delays_and_others_do_not() -> None:
    def delays(seed: int) -> list[int]:
        backoff = Backoff(REQUEST, random.Random(seed).randint)
        return [backoff.next_delay_ms() for _ in range(8)]

    assert delays(5) == delays(5)
    assert delays(5) != delays(6)


# --- the presets ------------------------------------------------------------------------------


def tries_until(policy: RetryPolicy, end_ms: int) -> int:
    """The tries begun within `end_ms` of the first one if each fails at once."""
    at_ms, tries = 0, 1
    while (at_ms := at_ms + policy.delay_ms(tries)) <= end_ms:
        tries += 1
    return tries


@pytest.mark.parametrize(
    ("policy", "tries"),
    [
        (retry_schedules.REQUEST, (4, 6, 24)),
        (retry_schedules.SEND, (5, 7, 35)),
        (retry_schedules.END_HALF_MESSAGE, (11, 51, 601)),
        (retry_schedules.PLAN, (2, 6, 61)),
        (retry_schedules.TASK, (2, 6, 61)),
        (retry_schedules.DECISION, (3, 11, 121)),
        (retry_schedules.DECISION_ROUTE, (6, 26, 301)),
        (retry_schedules.DECISION_SHOWN, (51, 251, 3001)),
        (retry_schedules.CHECK_ANSWERS, (3, 11, 121)),
        (retry_schedules.OFFSET_COMMIT, (2, 6, 61)),
        (retry_schedules.END_OFFSET, (3, 5, 16)),
        (retry_schedules.REPLICA, (1, 1, 2)),
        (retry_schedules.PRODUCER_HEARTBEAT, (2, 6, 61)),
    ],
)
def test_tries_in_the_seconds_of_an_outage(
    policy: RetryPolicy, tries: tuple[int, int, int]
) -> None:
    """ARCHITECTURE.md has these numbers: without jitter, in the 1st, 5th and 60th second."""
    assert tuple(tries_until(policy, end_ms) for end_ms in (1_000, 5_000, 60_000)) == tries


def test_presets_that_take_their_limit_from_options_have_none() -> None:
    presets = {
        name: one for name, one in vars(retry_schedules).items() if isinstance(one, RetryPolicy)
    }
    limits = {name: one.limit_ms for name, one in presets.items() if one.limit_ms is not None}
    assert limits == {"DECISION_ROUTE": 20_000}
    assert {one.tries_max for one in presets.values()} == {None}
    assert (retry_schedules.REQUEST_TRIES_MAX, retry_schedules.SAMPLE_LIMIT_MS) == (4, 1_000)


# --- the loop ---------------------------------------------------------------------------------


def test_the_last_try_is_made_when_the_limit_is_reached(clock: FakeClock) -> None:
    tries = Retry(RetryPolicy(1_000, 1_000, jitter=0, limit_ms=2_300), clock.clock)
    assert [tries.pause(error) for error in (AWAY, BUSY, AWAY, BUSY)] == [True, True, True, False]
    assert clock.sleeps == [1_000, 1_000, 300]
    assert (tries.failures, tries.waited_ms) == (4, 2_300)


def test_an_error_that_time_does_not_mend_ends_the_tries_at_once(clock: FakeClock) -> None:
    assert not Retry(retry_schedules.TASK.within(60_000), clock.clock).pause(
        NotAuthorizedError(16, "no")
    )
    assert clock.sleeps == []


def test_a_count_of_tries_ends_them_too(clock: FakeClock) -> None:
    tries = Retry(RetryPolicy(1, 1, limit_ms=60_000, tries_max=3), clock.clock)
    assert [tries.pause() for _ in range(3)] == [True, True, False]
    assert len(clock.sleeps) == 2


def test_a_success_counts_the_limit_from_now_on(clock: FakeClock) -> None:
    tries = Retry(RetryPolicy(600, 600, jitter=0, limit_ms=1_000), clock.clock)
    assert tries.pause()
    tries.reset()
    assert [tries.pause(), tries.pause(), tries.pause()] == [True, True, False]
    assert clock.sleeps == [600, 600, 400]


def test_work_is_done_until_it_succeeds_and_the_outage_is_logged_once(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    answers: Iterator[RocketMQError | int] = iter([AWAY, BUSY, AWAY, 5, 6])

    def work() -> int:
        answer = next(answers)
        if isinstance(answer, RocketMQError):
            raise answer
        return answer

    tries = Retry(retry_schedules.TASK.within(60_000), clock.clock, log=_LOG)
    assert (tries.call(work), tries.call(work)) == (5, 6)
    assert caplog.messages == [
        f"asking again for up to 60 s: {AWAY}",
        "answered after 3.0 s, resuming",
    ]


def test_a_long_outage_is_logged_again_each_half_minute(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def work() -> None:
        raise AWAY

    with pytest.raises(type(AWAY)):
        Retry(retry_schedules.TASK.within(70_000), clock.clock, log=_LOG).call(work)
    assert caplog.messages == [f"asking again for up to {left} s: {AWAY}" for left in (70, 40, 10)]


def test_work_that_keeps_failing_raises_its_own_error_whatever_it_was_judged_to_be(
    clock: FakeClock,
) -> None:
    refusal = NotAuthorizedError(16, "no")

    def work() -> None:
        raise refusal

    tries = Retry(retry_schedules.TASK.within(2_000), clock.clock)
    with pytest.raises(NotAuthorizedError):
        tries.call(work, lambda _: AWAY)
    assert clock.sleeps == [1_000, 1_000]


# --- the outage clock -------------------------------------------------------------------------


def outage_clock(limit_ms: int = 1_000) -> OutageClock:
    return OutageClock(Backoff(RetryPolicy(100, 400, jitter=0).within(limit_ms)))


def test_pulls_that_fail_together_are_one_failure() -> None:
    outage = outage_clock()
    for now_ms in (10, 11, 12):
        outage.back_off(now_ms)
    assert outage.not_before_ms == 110
    outage.back_off(110)
    assert outage.not_before_ms == 310
    outage.progressed(320)
    outage.back_off(330)
    assert outage.not_before_ms == 430


def test_silence_ends_a_download_with_the_error_and_an_answer_ends_the_silence() -> None:
    outage = outage_clock()
    outage.raise_if_silent(0, AWAY, 500)
    outage.raise_if_silent(400, AWAY, 999)
    outage.answered(999)
    outage.raise_if_silent(900, AWAY, 1_500)
    with pytest.raises(ConnectError):
        outage.raise_if_silent(1_400, AWAY, 2_000)


def test_answers_without_progress_end_a_download_too() -> None:
    outage = outage_clock()
    outage.last_remark = "nothing here"
    outage.trouble(0, 5)
    outage.answered(900)
    outage.raise_if_stuck(QUEUE, 7, 999)
    with pytest.raises(DeadlineExceededError, match=r"at offset 7 for 1000 ms.*'nothing here'"):
        outage.raise_if_stuck(QUEUE, 7, 1_000)
    outage.last_error = BUSY
    with pytest.raises(BrokerBusyError):
        outage.raise_if_stuck(QUEUE, 7, 1_000)
    outage.progressed(1_001)
    outage.raise_if_stuck(QUEUE, 7, 9_000)


# --- the rest of the project ------------------------------------------------------------------

SLEEPING = {
    "rocketmq_client/retry.py",
    # These wait for messages, for a rate, or for their outage clock.
    "pyspark_rocketmq/jobs/resend.py",
    "pyspark_rocketmq/stream/offset_driver.py",
    "rocketmq_client/transport/grpc/download.py",
}


def test_no_other_module_sleeps_while_it_waits_for_a_cluster() -> None:
    connector = Path(__file__).parents[2] / "connector"
    files = [
        *(connector / "rocketmq_client").rglob("*.py"),
        *(connector / "pyspark_rocketmq").rglob("*.py"),
    ]
    sleeping = {path for path in files if "time.sleep" in path.read_text(encoding="utf-8")}
    assert {str(path.relative_to(connector)) for path in sleeping} == SLEEPING
