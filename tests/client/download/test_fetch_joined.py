"""Pulls that a download sends as one: when it does, and what becomes of their answers."""

from __future__ import annotations

import pytest

from rocketmq_client.download.contract import ReadLimits
from rocketmq_client.download.fetch_window import FetchWindow
from rocketmq_wire.errors import ConnectionLostError, DeadlineExceededError, broker_error
from rocketmq_wire.requests.messages import PullReply, PullStatus
from support.simulated_queue import (
    LIMITS,
    Faults,
    SimulatedQueue,
    driver_of,
    fake_records,
    next_pull,
    offsets_in,
    window_of,
)

TIMES = 16


def found(start, next_begin, *, size=120, end=1_000_000):
    body = fake_records(range(start, next_begin), lambda _: size)
    return PullReply(PullStatus.FOUND, next_begin, 0, end, (body,))


def begun(start=100, end=100_000, limits=LIMITS, *, size=120, queue_end=1_000_000):
    """A window that has seen one answer of 32 messages."""
    window = window_of(start, end, limits, times_max=TIMES)
    first = next_pull(window, 0)
    assert first.times == 1
    reply = found(first.start, first.start + 32, size=size, end=queue_end)
    window.on_reply(first.ticket, reply, 1)
    return window


def all_pulls(window: FetchWindow, now_ms: int = 2):
    return list(iter(lambda: window.next_pull(now_ms), None))


def test_small_pulls_go_sixteen_at_a_time():
    window = begun()
    pulls = all_pulls(window)
    assert [(pull.start, pull.count_max, pull.times) for pull in pulls] == [
        (132 + number * 512, 32, TIMES) for number in range(4)
    ]
    assert window.in_flight == LIMITS.pulls_in_flight == 64


def test_their_answer_is_taken_as_one():
    window = begun(end=100 + 32 + 512)
    (pull,) = all_pulls(window)
    window.on_reply(pull.ticket, found(pull.start, pull.start + pull.width), 3)
    assert window.take().end == 100 + 32 + 512
    assert window.is_finished


@pytest.mark.parametrize(
    ("limits", "options", "times"),
    [
        (ReadLimits(pulls_in_flight=8), {}, 2),
        (ReadLimits(pulls_in_flight=3), {}, 1),
        (ReadLimits(), {"size": 1_600}, 1),  # Large answers take their time anyway.
        (ReadLimits(), {"queue_end": 100 + 32 + 5 * 32 + 7}, 5),
        (ReadLimits(), {"end": 100 + 32 + 3 * 32 + 7}, 3),
        (ReadLimits(messages_max=100), {}, 1),
        (ReadLimits(span_max=300), {}, 1),
        (ReadLimits(bytes_max=40_000), {}, 1),
    ],
)
def test_limits_hold_for_all_that_is_sent_as_one(limits, options, times):
    window = begun(limits=limits, **options)
    assert window.next_pull(2).times == times


@pytest.mark.parametrize(("size", "pulls"), [(1_600, 41), (4_000, 17), (8_000, 9)])
def test_a_broker_is_not_made_to_hold_more_than_some_mebibytes(size, pulls):
    """32 messages of 1,600, 4,000 and 8,000 bytes a pull."""
    window = begun(size=size)
    assert len(all_pulls(window)) == pulls
    assert window.outstanding_bytes - window.held_bytes <= 2_097_152 + 32 * size


def test_a_pull_that_does_not_fit_waits_while_enough_are_in_flight():
    window = begun()
    pulls = all_pulls(window)
    window.on_reply(pulls[0].ticket, found(pulls[0].start, pulls[0].start + 512), 3)
    assert [pull.times for pull in all_pulls(window)] == [TIMES]


def test_filtered_pulls_go_one_by_one():
    driver = driver_of(
        window_of(0, 30_000, is_filtered=True, times_max=TIMES),
        SimulatedQueue(0, 30_000, is_filtered=True, matches=lambda offset: offset % 3 == 0),
    ).run()
    assert {pull.times for pull in driver.pulls} == {1}
    assert driver.offsets == list(range(0, 30_000, 3))


def test_the_first_message_of_a_queue_is_asked_for_by_itself():
    """What is found there may be another message's record, which one narrow pull can tell."""
    window = window_of(0, 100_000, times_max=TIMES)
    assert next_pull(window, 0).times == 1


def test_a_short_answer_among_them_leaves_its_own_hole_and_no_other():
    window = begun(end=100 + 32 + 4 * 32)
    (pull,) = all_pulls(window)
    assert pull.times == 4
    starts = [pull.start + number * 32 for number in range(4)]
    replies = [found(start, start + 32) for start in starts]
    replies[1] = found(starts[1], starts[1] + 20)
    window.on_replies(pull.ticket, replies, 3)
    (hole,) = all_pulls(window, 4)
    assert (hole.start, hole.width) == (starts[1] + 20, 12)
    window.on_reply(hole.ticket, found(hole.start, hole.start + 12), 5)
    chunks = list(iter(window.take, None))
    offsets = [offset for chunk in chunks for offset in offsets_in(chunk.body)]
    assert offsets == list(range(100, window.wanted.end))
    assert window.is_finished


@pytest.mark.parametrize("code", [2, 215])
def test_a_plea_to_slow_down_among_them_is_obeyed_and_the_others_are_kept(code):
    window = begun(end=100 + 32 + 4 * 32)
    (pull,) = all_pulls(window)
    starts = [pull.start + number * 32 for number in range(4)]
    replies = [found(start, start + 32) for start in starts]
    replies[3] = broker_error(code, "slow down")
    window.on_replies(pull.ticket, replies, 3)
    assert window.next_pull(3) is None
    (hole,) = all_pulls(window, 50_000)
    assert (hole.start, hole.width) == (starts[3], 32)


def test_a_plea_among_answers_is_endured_however_long_the_last_answer_is_ago():
    """On a slow link bytes may come for minutes before an answer is whole."""
    window = begun()
    pull = all_pulls(window)[0]
    starts = [pull.start + number * 32 for number in range(TIMES)]
    late_ms = 10 * LIMITS.outage_ms
    replies = [broker_error(2, "busy"), *(found(start, start + 32) for start in starts[1:])]
    window.on_replies(pull.ticket, replies, late_ms)
    (hole, *_) = all_pulls(window, late_ms + 60_000)
    assert (hole.start, hole.width) == (starts[0], 32)


def test_pulls_go_one_by_one_for_a_while_after_one_short_answer():
    window = begun()
    pull = all_pulls(window)[0]
    starts = [pull.start + number * 32 for number in range(TIMES)]
    replies = [found(start, start + 32) for start in starts]
    replies[3] = found(starts[3], starts[3] + 31)
    window.on_replies(pull.ticket, replies, 3)
    assert {pull.times for pull in all_pulls(window, 4)} == {1}


@pytest.mark.parametrize(
    "error",
    [ConnectionLostError("broker-a", "reset"), DeadlineExceededError("broker-a", "no answer")],
)
def test_after_a_failure_pulls_go_one_by_one_until_enough_have_been_answered(error):
    window = begun()
    failed = all_pulls(window)
    for pull in failed:
        window.on_failure(pull.ticket, error, 3)
    now_ms = 100_000
    singles = 0
    while (pull := window.next_pull(now_ms)).times == 1:
        window.on_reply(pull.ticket, found(pull.start, pull.start + 32), now_ms)
        singles += 1
    assert TIMES <= singles <= TIMES + 2


def test_answers_that_were_given_up_are_ignored():
    window = begun()
    pull = all_pulls(window)[0]
    window.on_failure(pull.ticket, ConnectionLostError("broker-a", "reset"), 3)
    held = window.held_bytes
    window.on_replies(pull.ticket, [found(pull.start, pull.start + 32)] * TIMES, 4)
    assert window.held_bytes == held


def test_a_capped_broker_is_read_with_a_sixteenth_of_the_exchanges():
    window = window_of(0, 64_000, times_max=TIMES)
    driver = driver_of(window, SimulatedQueue(0, 70_000)).run()
    assert driver.offsets == list(range(64_000))
    assert len(driver.pulls) < 64_000 / 32 / TIMES * 1.4
    assert driver.in_flight_max <= LIMITS.pulls_in_flight


def test_a_broker_that_gives_less_than_before_is_read_without_asking_twice():
    queue = SimulatedQueue(0, 60_000)
    lowered = [(1_100, lambda queue: setattr(queue, "count_cap", 8))]
    driver = driver_of(window_of(0, 60_000, times_max=TIMES), queue, changes=lowered).run()
    driver.check_order()
    assert driver.offsets == list(range(60_000))
    assert driver.joint_troubles > 0
    asked = sum(pull.times for pull in driver.pulls)
    assert asked < 60_000 / 8 * 1.2


def test_ends_of_index_files_and_busy_brokers_cost_nothing_but_time():
    queue = SimulatedQueue(0, 40_000, index_file_count=1_005)
    faults = Faults(busy=0.02, broken=0.02, lost=0.01, duplicated=0.1)
    driver = driver_of(window_of(7, 39_990, times_max=TIMES), queue, faults=faults).run()
    driver.check_order()
    assert driver.offsets == list(range(7, 39_990))
    assert driver.joint_troubles > 0
