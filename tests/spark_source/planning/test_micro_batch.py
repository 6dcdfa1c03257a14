"""Planning micro-batches: shares, admission and ranges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.planning.micro_batch import (
    Limits,
    admit,
    advance,
    backlogs,
    ranges_between,
    share_limit,
)
from rocketmq_wire.model import OffsetRange, QueueId

Q = [QueueId("orders", "broker-a", index) for index in range(8)]


def sized(*sizes: int) -> dict[QueueId, int]:
    return dict(zip(Q, sizes, strict=False))


# --- shares -----------------------------------------------------------------------------------


def test_shares_are_those_of_the_kafka_source() -> None:
    assert share_limit(sized(101, 11, 1), 10) == sized(8, 1, 1)
    assert share_limit(sized(93, 10), 10) == sized(9, 1)


def test_a_limit_above_the_backlog_takes_it_all() -> None:
    assert share_limit(sized(3, 4), 7) == sized(3, 4)


@given(st.lists(st.integers(1, 2**60), min_size=1, max_size=8), st.integers(1, 2**60))
def test_shares_starve_no_queue_and_exceed_the_limit_only_by_rounding(
    sizes: list[int], limit: int
) -> None:
    shares = share_limit(sized(*sizes), limit)
    assert all(1 <= shares[q] <= size for q, size in sized(*sizes).items())
    assert sum(shares.values()) <= max(limit, 0) + len(sizes)
    if sum(sizes) <= limit:
        assert sum(shares.values()) == sum(sizes)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=8), st.integers(1, 100))
def test_repeated_shares_reach_the_end(sizes: list[int], limit: int) -> None:
    position, ends = sized(*[0] * len(sizes)), sized(*sizes)
    for _ in range(sum(sizes) + 1):
        waiting = backlogs(position, ends)
        taken = admit(waiting, Limits(limit), waited_ms=0)
        if not taken:
            break
        position = {q: n + taken.get(q, 0) for q, n in position.items()}
    assert position == ends


# --- admission --------------------------------------------------------------------------------


def test_nothing_waiting_takes_nothing() -> None:
    assert admit({}, Limits(10, 5), waited_ms=10**9) == {}


def test_the_minimum_waits_until_it_is_there_or_the_delay_is_over() -> None:
    limits = Limits(messages_min=10, delay_ms_max=1_000)
    assert admit(sized(9), limits, waited_ms=999) == {}
    assert admit(sized(9), limits, waited_ms=1_000) == sized(9)
    assert admit(sized(9, 1), limits, waited_ms=0) == sized(9, 1)


def test_bytes_become_messages_by_the_sampled_size_and_the_smaller_limit_wins() -> None:
    limits = Limits(bytes_max=1_000)
    assert admit(sized(100), limits, waited_ms=0, bytes_per_message=100) == sized(10)
    assert admit(sized(100), limits, waited_ms=0, bytes_per_message=5_000) == sized(1)
    unseen = Limits(bytes_max=4_096)
    assert admit(sized(100), unseen, waited_ms=0) == sized(4), "no size is no reason for no limit"
    assert admit(sized(100), limits, waited_ms=0, bytes_per_message=0) == sized(100)
    both = Limits(messages_max=4, bytes_max=1_000)
    assert admit(sized(100), both, waited_ms=0, bytes_per_message=100) == sized(4)


# --- offsets to ranges ------------------------------------------------------------------------


def test_batch_0_anchors_every_queue_and_replays_from_its_anchor() -> None:
    start = SourceOffset.initial(sized(100, 20), {})
    end = advance(start, start.offsets, sized(10), {})
    assert end == SourceOffset(sized(110, 20), sized(100, 20))
    assert ranges_between(start, end) == [OffsetRange(Q[0], 100, 110)]
    # After a crash the initial offset is found again, and may be past the logged end.
    later = SourceOffset.initial(sized(130, 20), {})
    assert ranges_between(later, end) == [OffsetRange(Q[0], 100, 110)]


def test_a_replayed_empty_batch_0_stays_empty() -> None:
    logged = SourceOffset.initial(sized(100), {})
    assert ranges_between(SourceOffset.initial(sized(130), {}), logged) == []
    assert ranges_between(logged, logged) == []


def test_later_batches_anchor_only_what_is_new_or_corrected() -> None:
    start = SourceOffset(sized(110, 20), sized(100, 20))
    position = {Q[0]: 110, Q[1]: 25, Q[2]: 3}
    end = advance(start, position, {Q[0]: 5, Q[2]: 4}, {Q[2]: 7})
    assert end == SourceOffset({Q[0]: 115, Q[1]: 25, Q[2]: 7}, {Q[1]: 25, Q[2]: 3}, {Q[2]: 7})
    assert ranges_between(start, end) == [OffsetRange(Q[0], 110, 115), OffsetRange(Q[2], 3, 7)]


def test_a_queue_that_went_back_is_read_from_its_anchor() -> None:
    start = SourceOffset(sized(1_000), {})
    end = advance(start, sized(900), sized(5), {})
    assert ranges_between(start, end) == [OffsetRange(Q[0], 900, 905)]


def test_the_same_offset_twice_reads_nothing_though_it_has_anchors() -> None:
    offset = SourceOffset(sized(110), sized(100))
    assert ranges_between(offset, offset) == []
