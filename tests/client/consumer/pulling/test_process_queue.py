"""The consumed offset, in any order of consumption, and when a queue is pulled from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client.consumer.common.settings import FlowLimits
from rocketmq_client.consumer.pulling.process_queue import (
    FlowLimit,
    ProcessQueue,
    PullControl,
    Step,
)
from rocketmq_wire.errors import ConnectionLostError, broker_error
from support.received_messages import received


def queue_with(*offsets: int, next_begin: int) -> ProcessQueue:
    queue = ProcessQueue(0)
    queue.add([received(offset) for offset in offsets], next_begin)
    return queue


def test_the_smallest_pending_offset_is_the_consumed_offset() -> None:
    queue = queue_with(5, 6, 7, next_begin=8)
    queue.remove([queue.pending[6], queue.pending[7]])
    assert queue.consumed_offset == 5


def test_without_pending_messages_all_pulled_ones_are_consumed() -> None:
    queue = queue_with(5, 6, next_begin=40)
    queue.remove(queue.first(2))
    assert queue.consumed_offset == 40


def test_a_pull_without_matches_moves_the_consumed_offset() -> None:
    queue = queue_with(next_begin=800)
    assert queue.consumed_offset == 800


def test_taken_messages_leave_the_limits_and_are_consumed_when_finished() -> None:
    queue = queue_with(5, 6, 7, next_begin=9)
    queue.take(queue.first(1))
    queue.take(queue.first(1))
    assert (queue.count, queue.size, queue.consumed_offset, queue.waiting_from) == (1, 1, 5, 7)
    queue.finish_taken()
    assert queue.consumed_offset == 7
    queue.take(queue.first(1))
    assert (queue.count, queue.consumed_offset) == (0, 7)
    queue.finish_taken()
    assert queue.consumed_offset == 9


def test_span_and_size_count_pending_messages() -> None:
    queue = queue_with(5, 9, 300, next_begin=301)
    assert (queue.span, queue.count, queue.size) == (295, 3, 3)
    queue.remove(queue.first(2))
    assert (queue.span, queue.count, queue.size) == (0, 1, 1)


def test_removing_twice_counts_once() -> None:
    queue = queue_with(5, 6, next_begin=7)
    first = queue.first(1)
    queue.remove(first)
    queue.remove(first)
    assert (queue.count, queue.size) == (1, 1)


def test_a_lock_that_was_not_renewed_is_not_trusted() -> None:
    queue = ProcessQueue(0, is_locked=True, lock_ms=1_000)
    assert queue.is_lock_valid(31_000)
    assert not queue.is_lock_valid(31_001)
    queue.is_locked = False
    assert not queue.is_lock_valid(1_000)


@given(st.lists(st.integers(1, 5), max_size=30), st.randoms(use_true_random=False))
def test_the_consumed_offset_never_passes_a_pending_message_nor_goes_back(
    gaps: list[int], random: object
) -> None:
    offsets = [sum(gaps[: index + 1]) for index in range(len(gaps))]
    queue = queue_with(*offsets, next_begin=sum(gaps) + 1)
    left = list(offsets)
    random.shuffle(left)  # type: ignore[attr-defined]
    done = queue.consumed_offset
    while left:
        queue.remove([queue.pending[left.pop()]])
        assert done <= queue.consumed_offset
        done = queue.consumed_offset
        assert done == min(left, default=sum(gaps) + 1)


def step(control: PullControl, queue: ProcessQueue, now_ms: int) -> Step:
    return control.step(queue, now_ms, is_suspended=False)


def test_the_queues_of_a_topic_share_its_limits() -> None:
    limits = FlowLimits(topic_count_max=100, topic_size_max=2)
    assert [limits.shared_by(n).count_max for n in (1, 3, 1_000)] == [100, 33, 1]
    assert limits.shared_by(3).shared_by(2) == limits.shared_by(2)
    assert limits.shared_by(3).size_max == 1
    assert FlowLimits().shared_by(3) == FlowLimits()
    with pytest.raises(ValueError, match="at least 1"):
        FlowLimits(topic_count_max=0)


def test_one_pull_is_under_way_at_a_time() -> None:
    control, queue = PullControl(FlowLimits()), ProcessQueue(0)
    assert [step(control, queue, 0), step(control, queue, 0)] == [Step.PULL, Step.WAIT]
    control.on_reply()
    assert step(control, queue, 5) is Step.PULL


@pytest.mark.parametrize(
    ("limits", "exceeded"),
    [
        (FlowLimits(count_max=1), FlowLimit.QUEUE),
        (FlowLimits(size_max=1), FlowLimit.QUEUE),
        (FlowLimits(span_max=99), FlowLimit.SPAN),
    ],
)
def test_over_a_limit_the_queue_pauses_50_ms(limits: FlowLimits, exceeded: FlowLimit) -> None:
    control, queue = PullControl(limits), ProcessQueue(0)
    queue.add([received(0), received(100)], 101)
    assert step(control, queue, 1_000) is Step.FLOW
    assert (control.not_before_ms, control.exceeded) == (1_050, exceeded)
    queue.remove(queue.first(2))
    assert step(control, queue, 1_049) is Step.WAIT
    assert step(control, queue, 1_050) is Step.PULL


def test_at_a_limit_the_queue_is_still_pulled_from() -> None:
    queue = ProcessQueue(0)
    queue.add([received(0), received(100)], 101)
    limits = FlowLimits(count_max=2, size_max=2, span_max=100)
    assert step(PullControl(limits), queue, 0) is Step.PULL


def test_in_orderly_consumption_the_span_does_not_count() -> None:
    queue = ProcessQueue(0)
    queue.add([received(0), received(10_000)], 10_001)
    assert step(PullControl(FlowLimits(span_max=None)), queue, 0) is Step.PULL


def test_consumption_ends_the_pause_once_half_is_consumed() -> None:
    control, queue = PullControl(FlowLimits(count_max=4)), ProcessQueue(0)
    queue.add([received(offset) for offset in range(5)], 5)
    assert step(control, queue, 0) is Step.FLOW
    queue.remove(queue.first(2))
    assert not control.on_consumed(queue)
    queue.remove(queue.first(1))
    assert control.on_consumed(queue)
    assert step(control, queue, 1) is Step.PULL


def test_never_fewer_than_a_small_pulls_worth_is_asked_for() -> None:
    control, queue = PullControl(FlowLimits(count_max=100)), ProcessQueue(0)
    queue.add([received(offset) for offset in range(99)], 99)
    assert control.room(queue, 500) == 32
    assert control.room(queue, 16) == 16
    assert control.room(ProcessQueue(0), 500) == 101, "enough to exceed the limit"


def test_a_suspended_queue_is_checked_every_second() -> None:
    control, queue = PullControl(FlowLimits()), ProcessQueue(0)
    assert control.step(queue, 0, is_suspended=True) is Step.SUSPENDED
    assert control.not_before_ms == 1_000


def test_a_queue_whose_topic_is_not_subscribed_to_rests_3_s() -> None:
    control, queue = PullControl(FlowLimits()), ProcessQueue(0)
    assert control.step(queue, 0, is_suspended=False, is_wanted=False) is Step.UNWANTED
    assert control.not_before_ms == 3_000


def test_when_all_queues_together_hold_too_much_each_rests_50_ms() -> None:
    control, queue = PullControl(FlowLimits()), ProcessQueue(0)
    assert control.step(queue, 0, is_suspended=False, is_full=True) is Step.FLOW
    assert (control.not_before_ms, control.exceeded) == (50, FlowLimit.CONSUMER)


def test_errors_rest_3_s_and_the_brokers_flow_control_20_ms() -> None:
    control = PullControl(FlowLimits())
    control.on_error(ConnectionLostError("a", "gone"), 100)
    assert control.not_before_ms == 3_100
    control.on_error(broker_error(215, "slow down"), 100)
    assert control.not_before_ms == 120


def test_orderly_pulls_wait_for_the_lock_and_then_read_the_committed_offset() -> None:
    control, queue = PullControl(FlowLimits(span_max=None), is_orderly=True), ProcessQueue(5)
    assert step(control, queue, 0) is Step.UNLOCKED
    assert control.not_before_ms == 3_000
    queue.is_locked, queue.lock_ms = True, 3_000
    assert step(control, queue, 3_000) is Step.REREAD
    control.on_reread(queue, 42, 3_001)
    assert (step(control, queue, 3_001), queue.next_begin) == (Step.PULL, 42)
    control.on_reply()
    assert step(control, queue, 3_002) is Step.PULL


def test_a_lost_lock_makes_the_queue_read_the_committed_offset() -> None:
    control, queue = PullControl(FlowLimits(span_max=None), is_orderly=True), ProcessQueue(5)
    queue.is_locked = True
    step(control, queue, 0)
    control.on_reread(queue, 5, 0)
    assert step(control, queue, 40_000) is Step.UNLOCKED
    queue.lock_ms = 43_000
    assert step(control, queue, 43_000) is Step.REREAD


def test_a_failed_read_of_the_committed_offset_is_repeated_after_3_s() -> None:
    control, queue = PullControl(FlowLimits(), is_orderly=True), ProcessQueue(5)
    queue.is_locked = True
    assert step(control, queue, 0) is Step.REREAD
    control.on_reread(queue, None, 0)
    assert step(control, queue, 2_999) is Step.WAIT
    assert step(control, queue, 3_000) is Step.REREAD


def test_a_pull_interval_rests_behind_found_messages_only() -> None:
    control, queue = PullControl(FlowLimits(), interval_ms=200), ProcessQueue(0)
    step(control, queue, 0)
    control.on_reply()
    assert step(control, queue, 1) is Step.PULL
    control.on_reply()
    control.on_found(10)
    assert step(control, queue, 209) is Step.WAIT
    assert step(control, queue, 210) is Step.PULL


def test_a_dropped_queue_is_never_pulled_from() -> None:
    queue = ProcessQueue(0)
    queue.drop()
    assert step(PullControl(FlowLimits()), queue, 0) is Step.STOP


def test_limits_must_let_something_through() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        FlowLimits(count_max=0)
