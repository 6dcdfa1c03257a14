"""The clock that stands still while the consumer works."""

from __future__ import annotations

import logging

import pytest

from rocketmq_client.transport.net.clock import ActiveClock, OutageLog


def test_the_clock_stands_still_outside():
    ticks = iter(range(0, 100_000_000_000, 1_000_000_000))
    clock = ActiveClock(lambda: next(ticks))  # Every look takes a second.
    with clock.inside():
        inside_ms = clock.now_ms()
    outside_ms = clock.now_ms()
    assert [clock.now_ms() for _ in range(5)] == [outside_ms] * 5
    with clock.inside():
        assert clock.now_ms() - inside_ms <= 2_000


def test_a_wait_is_logged_after_five_seconds_and_each_half_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = OutageLog(logging.getLogger("test"), 60_000)

    def waits(from_ms: int, until_ms: int) -> list[int]:
        caplog.clear()
        logged = []
        for now_ms in range(from_ms, until_ms, 100):
            before = len(caplog.messages)
            log.log_wait(now_ms, lambda: "queue 0 offset=12: no answer yet")
            logged += [now_ms] * (len(caplog.messages) - before)
        return logged

    assert waits(1_000, 70_000) == [6_000, 36_000, 66_000]
    assert caplog.messages[1] == "waited 35 s for queue 0 offset=12: no answer yet"
    log.end_wait()
    assert waits(70_000, 75_000) == []
