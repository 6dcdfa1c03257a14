"""Polls of the ends of many queues: which requests, how often, and after refusals."""

from __future__ import annotations

import pytest

from rocketmq_client.offsets.queue_ends import INTERVAL_MS, EndPoll, PollTarget
from rocketmq_wire.errors import ConnectError, broker_error
from rocketmq_wire.model import QueueId, QueueStats
from rocketmq_wire.requests.offsets import GetMaxOffset, OffsetReply
from rocketmq_wire.requests.topics import GetTopicStats, TopicStatsReply

A = [QueueId("orders", "a", index) for index in range(3)]
B = [QueueId("orders", "b", index) for index in range(2)]
AT_A, AT_B = PollTarget("orders", "a"), PollTarget("orders", "b")


def stats(*queues: QueueId, end: int = 7) -> TopicStatsReply:
    return TopicStatsReply({queue: QueueStats(0, end, 0) for queue in queues})


def targets(poll: EndPoll, now_ms: int, demand: int) -> list[PollTarget]:
    return [target for target, _ in poll.next_requests(now_ms, demand)]


def test_one_request_a_broker_returns_the_ends_of_all_its_queues() -> None:
    poll = EndPoll([*A, *B])
    asked = poll.next_requests(1_000, 1)
    assert asked == [(AT_A, GetTopicStats("orders")), (AT_B, GetTopicStats("orders"))]
    assert not poll.is_settled(1_000, 1)
    assert poll.on_answer(AT_A, stats(*A)) == dict.fromkeys(A, 7)
    assert poll.on_answer(AT_B, stats(*B, end=9)) == dict.fromkeys(B, 9)
    assert poll.is_settled(1_001, 1)


def test_nothing_is_asked_without_demand_or_too_often() -> None:
    poll = EndPoll(A)
    assert targets(poll, 1_000, 0) == []
    assert poll.wake_at_ms(0) is None
    assert targets(poll, 1_000, 1) == [AT_A]
    assert targets(poll, 5_000, 2) == [], "a request is in flight"
    assert poll.wake_at_ms(2) is None
    poll.on_answer(AT_A, stats(*A))
    assert poll.wake_at_ms(2) == 1_000 + INTERVAL_MS
    assert targets(poll, 999 + INTERVAL_MS, 2) == []
    assert targets(poll, 1_000 + INTERVAL_MS, 2) == [AT_A]


@pytest.mark.parametrize("code", [3, 16])
def test_without_statistics_queues_are_asked_for_one_by_one_at_once(code: int) -> None:
    poll = EndPoll([*A, *B])
    assert len(poll.next_requests(1_000, 1)) == 2
    assert poll.on_answer(AT_A, broker_error(code, "no")) == {}
    assert poll.next_requests(1_001, 1) == [], "the other request is in flight"
    poll.on_answer(AT_B, stats(*B))
    assert not poll.is_settled(1_002, 1)
    single = [(PollTarget("orders", "a", queue), GetMaxOffset(queue)) for queue in A]
    assert poll.next_requests(1_002, 1) == [*single, (AT_B, GetTopicStats("orders"))]
    assert poll.on_answer(single[1][0], OffsetReply(5)) == {A[1]: 5}
    lost = ConnectError("a", "away")
    assert poll.on_answer(single[2][0], lost) == {A[2]: lost}


def test_a_queue_that_statistics_leave_out_is_asked_for_by_itself() -> None:
    poll = EndPoll(A)
    poll.next_requests(1_000, 1)
    assert poll.on_answer(AT_A, stats(*A[:2])) == dict.fromkeys(A[:2], 7)
    assert targets(poll, 1_001, 1) == [AT_A, PollTarget("orders", "a", A[2])]
    poll.set_queues(A[:2])
    poll.on_answer(AT_A, stats(*A[:2]))
    poll.on_answer(PollTarget("orders", "a", A[2]), OffsetReply(1))
    assert targets(poll, 9_000, 2) == [AT_A]


def test_a_broker_that_is_unavailable_is_all_its_queues_error_and_is_asked_again() -> None:
    poll = EndPoll(A)
    poll.next_requests(1_000, 1)
    lost = ConnectError("a", "away")
    assert poll.on_answer(AT_A, lost) == dict.fromkeys(A, lost)
    assert targets(poll, 2_000, 2) == [AT_A]


def test_thousands_of_queues_are_asked_one_by_one_less_often() -> None:
    many = [QueueId("orders", "a", index) for index in range(3_000)]
    poll = EndPoll(many)
    poll.next_requests(1_000, 1)
    poll.on_answer(AT_A, broker_error(3, "no"))
    for target in targets(poll, 1_001, 1):
        poll.on_answer(target, OffsetReply(1))
    assert poll.wake_at_ms(2) == 4_001
