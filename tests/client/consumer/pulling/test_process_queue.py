"""The consumed offset, in any order of consumption."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client.consumer.pulling.process_queue import ProcessQueue
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
