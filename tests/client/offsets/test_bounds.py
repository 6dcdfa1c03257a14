"""Bounds of very many queues are asked for together, and of few, or where refused, one by one."""

from __future__ import annotations

from collections import Counter

import pytest

from rocketmq_client.offsets.bounds import ask_bounds
from rocketmq_wire.errors import ConnectError, NotAuthorizedError, raise_first
from rocketmq_wire.model import Bounds, QueueId, QueueStats
from rocketmq_wire.requests.offsets import GetMaxOffset, GetMinOffset, OffsetReply
from rocketmq_wire.requests.topics import GetTopicStats, TopicStatsReply

MANY = [QueueId(f"t{t}", f"b{b}", i) for t in range(10) for b in range(5) for i in range(20)]


class Brokers:
    """Every queue holds [5, 9); statistics of some brokers are refused or come from a replica."""

    def __init__(self, **statistics: object) -> None:
        self.statistics = statistics
        self.asked: Counter[str] = Counter()

    def __call__(self, requests):
        return [self._answer(broker, request) for broker, request in requests]

    def _answer(self, broker, request):
        self.asked[type(request).__name__] += 1
        if isinstance(request, GetMinOffset):
            return OffsetReply(5)
        if isinstance(request, GetMaxOffset):
            return OffsetReply(9)
        assert isinstance(request, GetTopicStats)
        how = self.statistics.get(broker, "listed")
        if isinstance(how, Exception):
            return how
        indexes = range(10) if how == "half" else range(20)
        stats = {QueueId(request.topic, broker, i): QueueStats(5, 9, 0) for i in indexes}
        return TopicStatsReply(stats, is_current=how != "replica")


def test_many_queues_take_one_request_a_topic_and_broker():
    brokers = Brokers()
    assert ask_bounds(brokers, MANY) == dict.fromkeys(MANY, Bounds(5, 9))
    assert brokers.asked == {"GetTopicStats": 50}


@pytest.mark.parametrize(
    "how", [NotAuthorizedError(16, "no"), ConnectError("b0:1", "away"), "half"]
)
def test_queues_missing_in_statistics_are_asked_for_one_by_one(how):
    brokers = Brokers(b0=how)
    assert ask_bounds(brokers, MANY) == dict.fromkeys(MANY, Bounds(5, 9))
    left = 100 if how == "half" else 200
    assert brokers.asked == {"GetTopicStats": 50, "GetMinOffset": left, "GetMaxOffset": left}


def test_a_replicas_statistics_are_not_current():
    found = raise_first(ask_bounds(Brokers(b3="replica"), MANY))
    assert {queue.broker for queue, held in found.items() if not held.is_current} == {"b3"}


def test_few_queues_need_no_statistics():
    brokers = Brokers()
    ask_bounds(brokers, MANY[:64])
    assert brokers.asked == {"GetMinOffset": 64, "GetMaxOffset": 64}
