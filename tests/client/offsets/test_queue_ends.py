"""The requests for one queue's end, in virtual time."""

from __future__ import annotations

from rocketmq_client.offsets.queue_ends import HOLD_MS, QueueWatch
from rocketmq_wire.errors import ConnectError, ConnectionLostError, TopicNotFoundError
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus
from rocketmq_wire.requests.offsets import GetMaxOffset, OffsetReply

QUEUE = QueueId("orders", "broker-a", 0)


def asked(watch, now_ms, turn, *, is_awaited=True):
    """The request that the watch sends next."""
    request = watch.next_request(now_ms, turn, is_awaited=is_awaited)
    assert request is not None
    return request


def held_at(end):
    watch = QueueWatch(QUEUE)
    watch.next_request(0, 1)
    watch.on_answer(OffsetReply(end), 1)
    request, _ = asked(watch, 1, 1)
    assert isinstance(request, PullMessages)
    return watch, request


def test_nothing_is_asked_without_demand():
    assert QueueWatch(QUEUE).next_request(0, 0) is None


def test_the_end_is_asked_for_once_and_a_pull_is_held_there_while_a_caller_waits():
    watch = QueueWatch(QUEUE, hold_ms := HOLD_MS // 2)
    request, _ = asked(watch, 0, 1, is_awaited=False)
    assert request == GetMaxOffset(QUEUE)
    assert watch.next_request(0, 1) is None
    assert not watch.is_settled(1)
    watch.on_answer(OffsetReply(42), 1)
    assert (watch.end, watch.is_settled(1)) == (42, True)
    assert watch.next_request(1, 1) is None
    pull, timeout_ms = asked(watch, 1, 1)
    assert isinstance(pull, PullMessages)
    assert (pull.start, pull.suspend_ms, pull.count_max, pull.commit) == (42, hold_ms, 1, None)
    assert timeout_ms > hold_ms + 5_000


def test_new_demand_asks_for_the_end_again_before_a_pull_is_held():
    watch = QueueWatch(QUEUE)
    watch.next_request(0, 1)
    watch.on_answer(OffsetReply(42), 1)
    assert not watch.is_settled(2)
    assert asked(watch, 2, 2)[0] == GetMaxOffset(QUEUE)
    watch.on_answer(OffsetReply(43), 3)
    pull, _ = asked(watch, 3, 2)
    assert isinstance(pull, PullMessages)
    assert pull.start == 43


def test_while_a_pull_is_held_nothing_is_asked_for_any_demand():
    watch, _ = held_at(42)
    assert watch.next_request(10, 99) is None
    assert watch.is_settled(99)


def test_an_arrival_moves_the_end_and_nothing_more_is_asked_without_demand():
    watch, _ = held_at(42)
    watch.on_answer(PullReply(PullStatus.FOUND, 43, 0, 57, (b"x",)), 9)
    assert watch.end == 57
    assert watch.next_request(10, 1) is None
    assert watch.is_settled(1)
    assert not watch.is_settled(2)
    request, _ = watch.next_request(10, 2)
    assert request == GetMaxOffset(QUEUE)


def test_a_held_pull_that_expires_is_sent_again_at_once():
    watch, _ = held_at(42)
    watch.on_answer(PullReply(PullStatus.NO_NEW_MESSAGE, 42, 0, 42), 15_000)
    assert watch.next_request(15_000, 1)[0].start == 42


def test_a_broker_that_does_not_hold_pulls_is_asked_after_pauses():
    watch, _ = held_at(42)
    watch.on_answer(PullReply(PullStatus.NO_NEW_MESSAGE, 42, 0, 42), 2)
    assert watch.next_request(2, 1) is None
    assert watch.wake_at_ms(1) == 202
    assert watch.next_request(202, 1) is not None


def test_a_queue_that_was_cut_is_watched_at_its_new_end():
    watch, _ = held_at(42)
    watch.on_answer(PullReply(PullStatus.OFFSET_ILLEGAL, 7, 0, 7), 500)
    assert watch.end == 7
    assert watch.next_request(900, 1)[0].start == 7


def test_failures_back_off_and_keep_the_last_known_end():
    watch, _ = held_at(42)
    error = ConnectionLostError("broker-a", "reset")
    watch.on_answer(error, 500)
    assert (watch.end, watch.error) == (42, error)
    assert watch.is_settled(9), "ends() waits for no unreachable broker"
    assert watch.next_request(501, 1) is None
    first = watch.wake_at_ms(1)
    assert watch.next_request(first, 1)[0] == GetMaxOffset(QUEUE)
    watch.on_answer(error, first)
    assert watch.wake_at_ms(1) - first > 200
    watch.next_request(watch.wake_at_ms(1), 1)
    watch.on_answer(OffsetReply(50), 9_000)
    assert watch.error is None


def doubted_since_ms(watch, demand, now_ms):
    return watch.doubted_since_ms(now_ms, has_answer=watch.has_answer(demand))


def test_behind_a_broken_connection_a_caller_s_demand_is_asked_for_50_ms_later():
    watch, _ = held_at(42)
    assert doubted_since_ms(watch, 9, 499) is None
    watch.on_answer(ConnectionLostError("broker-a", "reset"), 500)
    assert watch.wake_at_ms(9) == 550
    assert watch.next_request(549, 9) is None
    assert watch.next_request(550, 9)[0] == GetMaxOffset(QUEUE)
    assert doubted_since_ms(watch, 9, 551) == 500
    watch.on_answer(OffsetReply(50), 552)
    assert doubted_since_ms(watch, 9, 552) is None


def test_a_refused_connection_ends_the_doubt_of_its_demand_alone():
    watch, _ = held_at(42)
    watch.on_answer(ConnectionLostError("broker-a", "reset"), 500)
    watch.next_request(550, 9)
    watch.on_answer(ConnectError("broker-a", "refused"), 551)
    assert doubted_since_ms(watch, 9, 551) is None
    assert doubted_since_ms(watch, 10, 551) == 500


def test_a_refusal_of_the_broker_is_no_doubt_and_no_demand_shortens_its_pause():
    watch, _ = held_at(42)
    watch.on_answer(TopicNotFoundError(17, "orders"), 500)
    assert doubted_since_ms(watch, 9, 501) is None
    assert watch.wake_at_ms(9) == watch.wake_at_ms(1)


def test_an_answer_on_its_way_is_a_doubt_since_it_was_asked_for():
    watch = QueueWatch(QUEUE)
    watch.next_request(7, 1)
    assert doubted_since_ms(watch, 1, 60) == 7
