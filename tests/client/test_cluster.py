"""Calls to a cluster whose brokers fail on the way: how often, and for how long, they are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rocketmq_client.cluster import Cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import ConnectError, NotAuthorizedError, RocketMQError
from rocketmq_wire.requests.contract import Reply
from support.fake_clock import FakeClock

AWAY = ConnectError("h:1", "away")


class FailingTransport:
    """Answers each request with what `answer` gives, after `takes_ms` of the clock."""

    def __init__(self, clock: FakeClock, answer: Callable[[], Any], takes_ms: int = 0) -> None:
        self.clock = clock
        self.answer = answer
        self.takes_ms = takes_ms
        self.timeouts_ms: list[int] = []

    def call_many(self, requests: Sequence[Any], *, timeout_ms: int) -> list[Reply | RocketMQError]:
        self.timeouts_ms.append(timeout_ms)
        self.clock.now_ms += min(timeout_ms, self.takes_ms)
        return [self.answer() for _ in requests]


def cluster_on(transport: FailingTransport) -> Cluster:
    settings = ConnectionSettings(("h:1",), request_timeout_ms=5_000)
    return Cluster(settings, transport, transport.clock.clock)  # type: ignore[arg-type]


def test_a_call_that_fails_on_the_way_is_made_four_times() -> None:
    transport = FailingTransport(FakeClock(), lambda: AWAY)
    with pytest.raises(ConnectError):
        cluster_on(transport).topics()
    assert len(transport.timeouts_ms) == 4
    pauses = transport.clock.sleeps
    assert all(0.75 * full <= ms <= full for ms, full in zip(pauses, (100, 200, 400), strict=True))


def test_all_tries_of_a_call_share_one_request_time_out() -> None:
    transport = FailingTransport(FakeClock(), lambda: AWAY, takes_ms=3_000)
    with pytest.raises(ConnectError):
        cluster_on(transport).topics()
    first_ms, second_ms = transport.timeouts_ms
    assert (first_ms, 1_900 <= second_ms <= 1_925) == (5_000, True)
    assert transport.clock.now_ms == 5_000


def test_a_refusal_is_not_asked_again() -> None:
    transport = FailingTransport(FakeClock(), lambda: NotAuthorizedError(16, "no"))
    with pytest.raises(NotAuthorizedError):
        cluster_on(transport).topics()
    assert transport.clock.sleeps == []
