"""Statistics of queues and groups: bounds, times of messages, lag."""

from __future__ import annotations

import pytest

from rocketmq_wire.model import (
    CommittedOffset,
    QueueStats,
    TopicConfig,
)
from rocketmq_wire.requests.messages import PullMessages
from rocketmq_wire.requests.offsets import (
    Boundary,
    GetConsumeStats,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    SearchOffset,
)
from rocketmq_wire.requests.topics import (
    CreateTopic,
    GetTopicStats,
)
from support.engines import NOW_MS, queue_of

ORDERS_0, ORDERS_1, ABSENT = queue_of("orders"), queue_of("orders", 1), queue_of("absent")


def value(broker, request):
    return broker.ask(request).value


class TestBoundsAndTimes:
    def test_bounds(self, filled):
        assert (value(filled, GetMinOffset(ORDERS_0)), value(filled, GetMaxOffset(ORDERS_0))) == (
            0,
            5,
        )

    @pytest.mark.parametrize("queue", [ORDERS_1, ABSENT, queue_of("orders", 99)])
    def test_queues_without_messages_read_as_empty(self, filled, queue):
        assert value(filled, GetMinOffset(queue)) == 0
        assert value(filled, GetMaxOffset(queue)) == 0
        assert value(filled, SearchOffset(queue, NOW_MS)) == 0
        assert value(filled, GetEarliestStoreTime(queue)) == -1

    def test_earliest_time_is_that_of_the_first_message(self, filled):
        assert value(filled, GetEarliestStoreTime(ORDERS_0)) == NOW_MS

    @pytest.mark.parametrize(
        ("timestamp_ms", "lower", "upper"),
        [
            (0, 0, 0),
            (-1, 0, 0),
            (NOW_MS, 0, 0),
            (NOW_MS + 1, 1, 0),
            (NOW_MS + 1_000, 1, 1),
            (NOW_MS + 3_000, 3, 4),
            (NOW_MS + 3_001, 5, 4),
        ],
    )
    def test_search_by_time(self, filled, timestamp_ms, lower, upper):
        assert value(filled, SearchOffset(ORDERS_0, timestamp_ms)) == lower
        assert value(filled, SearchOffset(ORDERS_0, timestamp_ms, Boundary.UPPER)) == upper


class TestStatistics:
    def test_topic_statistics_name_every_queue(self, filled):
        assert filled.ask(GetTopicStats("orders")).queues == {
            ORDERS_0: QueueStats(0, 5, NOW_MS + 3_000),
            ORDERS_1: QueueStats(0, 0, 0),
        }
        assert filled.refusal(GetTopicStats("absent")).code == 17

    def test_statistics_include_read_only_and_write_only_queues(self, filled):
        filled.ask(CreateTopic(TopicConfig("orders", 1, 3)))
        assert len(filled.ask(GetTopicStats("orders")).queues) == 3
        filled.ask(CreateTopic(TopicConfig("orders", 3, 1)))
        assert len(filled.ask(GetTopicStats("orders")).queues) == 3

    def test_consume_statistics_show_the_lag(self, filled):
        filled.ask(PullMessages("g", ORDERS_0, 0, 32, commit=2))
        expected = {
            ORDERS_0: CommittedOffset(5, 2, NOW_MS + 1_000, 5),
            ORDERS_1: CommittedOffset(0, 0, 0, 0),
        }
        assert filled.ask(GetConsumeStats("g")).queues == expected
        assert filled.ask(GetConsumeStats("g", "orders")).queues == expected
        assert filled.ask(GetConsumeStats("other")).queues == {}
