"""The clock that stands still while the consumer works."""

from __future__ import annotations

from rocketmq_client.transport.net.clock import ActiveClock


def test_the_clock_stands_still_outside():
    ticks = iter(range(0, 100_000_000_000, 1_000_000_000))
    clock = ActiveClock(lambda: next(ticks))  # Every look takes a second.
    with clock.inside():
        inside_ms = clock.now_ms()
    outside_ms = clock.now_ms()
    assert [clock.now_ms() for _ in range(5)] == [outside_ms] * 5
    with clock.inside():
        assert clock.now_ms() - inside_ms <= 2_000
