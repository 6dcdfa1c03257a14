"""Rates of a consumer in a topic, over its last minute."""

from __future__ import annotations

from rocketmq_client.consumer.common.rates import ConsumeCounts, Rates
from rocketmq_wire.requests.members import ConsumeRates


def test_rates_are_those_of_a_topic_and_of_the_last_minute() -> None:
    rates = Rates(0)
    counts = rates.of("orders")
    counts.pulls, counts.pull_ms, counts.pulled = 2, 30, 64
    counts.calls, counts.spent_ns, counts.succeeded, counts.failed = 4, 8_000_000, 60, 4
    assert rates.rates("orders", 2_000) == ConsumeRates(15.0, 32.0, 2.0, 30.0, 2.0, 4)
    assert rates.rates("other", 2_000) == ConsumeRates()
    for now_ms in range(1_000, 120_000, 1_000):
        rates.sample(now_ms)
    counts.pulled += 120
    # The counts of an hour stay, and a listener that was not called shows the hour's calls.
    assert rates.rates("orders", 120_000) == ConsumeRates(0.0, 2.0, 2.0, 0.0, 0.0, 4)
    for now_ms in range(120_000, 3_800_000, 1_000):
        rates.sample(now_ms)
    assert rates.rates("orders", 3_800_000) == ConsumeRates()


def test_a_total_adds_the_topics() -> None:
    rates = Rates(0)
    assert rates.total() == ConsumeCounts()
    rates.of("a").succeeded += 2
    rates.of("b").succeeded += 3
    assert rates.total() == ConsumeCounts(succeeded=5)
