"""Planning: shares, admission, ranges, tasks and late ends."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.planning.micro_batch import (
    EARLIEST,
    LATEST,
    BatchTask,
    Limits,
    PlannedQueue,
    QueueSlice,
    Split,
    admit,
    advance,
    backlogs,
    divide,
    plan_batch,
    ranges_between,
    share_limit,
)
from rocketmq_wire.model import OffsetRange, QueueId

Q = [QueueId("orders", "broker-a", index) for index in range(8)]
P = [QueueId("bills", "broker-a", index) for index in range(2)]


def sized(*sizes: int) -> dict[QueueId, int]:
    return dict(zip(Q, sizes, strict=False))


# --- shares -----------------------------------------------------------------------------------


def test_shares_are_those_of_the_kafka_source() -> None:
    assert share_limit(sized(101, 11, 1), 10) == sized(8, 1, 1)
    assert share_limit(sized(93, 10), 10) == sized(9, 1)


def test_a_limit_above_the_backlog_takes_it_all() -> None:
    assert share_limit(sized(3, 4), 7) == sized(3, 4)


@given(st.lists(st.integers(1, 2**60), min_size=1, max_size=8), st.integers(1, 2**60))
def test_shares_starve_nobody_and_exceed_the_limit_only_by_rounding(
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
    # After a crash the initial offset is found anew, and may be past the logged end.
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


# --- tasks ------------------------------------------------------------------------------------


def r(queue: QueueId, start: int, end: int) -> OffsetRange:
    return OffsetRange(queue, start, end)


def test_one_queue_is_one_task_and_empty_ranges_are_none() -> None:
    ranges = [r(Q[0], 0, 5), r(Q[1], 3, 3), r(Q[2], 7, 9)]
    assert divide(ranges, Split()) == [(ranges[0],), (ranges[2],)]


def test_min_partitions_cuts_the_largest() -> None:
    tasks = divide([r(Q[0], 0, 100), r(Q[1], 0, 10)], Split(partitions_min=4))
    assert tasks == [(r(Q[0], 0, 33),), (r(Q[0], 33, 66),), (r(Q[0], 66, 100),), (r(Q[1], 0, 10),)]


def test_max_records_cuts_evenly() -> None:
    tasks = divide([r(Q[0], 0, 10)], Split(records_max=4))
    assert tasks == [(r(Q[0], 0, 3),), (r(Q[0], 3, 6),), (r(Q[0], 6, 10),)]


def test_max_partitions_packs_small_ranges_together() -> None:
    tasks = divide([r(q, 0, 10) for q in Q], Split(partitions_max=2))
    assert [sum(map(len, task)) for task in tasks] == [40, 40]


def test_max_records_beats_max_partitions() -> None:
    tasks = divide([r(q, 0, 10) for q in Q], Split(partitions_max=2, records_max=15))
    assert [sum(map(len, task)) for task in tasks] == [10] * 8


SPLITS = st.builds(
    Split,
    st.none() | st.integers(1, 30),
    st.none() | st.integers(1, 6),
    st.none() | st.integers(1, 50),
)
RANGES = st.lists(
    st.tuples(st.integers(0, 1_000), st.integers(0, 300)), min_size=0, max_size=8
).map(lambda pairs: [r(q, a, a + n) for q, (a, n) in zip(Q, pairs, strict=False)])


@given(RANGES, SPLITS)
def test_no_offset_is_lost_or_read_twice_however_the_work_is_divided(
    ranges: list[OffsetRange], split: Split
) -> None:
    tasks = divide(ranges, split)
    pieces = sorted((piece for task in tasks for piece in task), key=lambda p: (p.queue, p.start))
    assert all(len(piece) > 0 for piece in pieces)
    for queue in Q:
        mine = [piece for piece in pieces if piece.queue == queue]
        whole = [piece for piece in ranges if piece.queue == queue and len(piece)]
        assert all(left.end == right.start for left, right in pairwise(mine))
        assert [(m.start) for m in mine[:1]] == [w.start for w in whole]
        assert [(m.end) for m in mine[-1:]] == [w.end for w in whole]
    total = sum(map(len, ranges))
    if split.records_max is not None:
        assert all(sum(map(len, task)) <= split.records_max for task in tasks)
    if split.partitions_max is None:
        assert len(tasks) >= min(split.partitions_min or 0, total)
    elif split.records_max is None:
        assert len(tasks) <= split.partitions_max
    assert tasks == divide(ranges, split)


# --- late ends --------------------------------------------------------------------------------


def test_only_the_first_start_and_the_last_end_are_late() -> None:
    queues = [PlannedQueue(Q[0], 0, 10, is_start_late=True, is_end_late=True)]
    tasks = plan_batch(queues, Split(records_max=4), ["orders"])
    assert [task.slices for task in tasks] == [
        (QueueSlice(Q[0], EARLIEST, 3),),
        (QueueSlice(Q[0], 3, 6),),
        (QueueSlice(Q[0], 6, LATEST, 10),),
    ]
    assert tasks[0].unplanned_topics == ("orders",)
    assert tasks[0].planned_queues == (Q[0],)


def test_fixed_ends_are_numbers_and_empty_queues_no_task() -> None:
    queues = [PlannedQueue(Q[0], 2, 10), PlannedQueue(Q[1], 5, 5)]
    assert plan_batch(queues, Split()) == [BatchTask((QueueSlice(Q[0], 2, 10),))]


def test_empty_late_queues_share_a_task_of_their_topic() -> None:
    queues = [
        PlannedQueue(Q[0], 2, 10, is_end_late=True),
        PlannedQueue(Q[1], 5, 5, is_end_late=True),
        PlannedQueue(P[0], 0, 0, is_start_late=True, is_end_late=True),
        PlannedQueue(P[1], 0, 0, is_start_late=True, is_end_late=True),
    ]
    assert plan_batch(queues, Split(), ["bills", "orders"]) == [
        BatchTask(
            (QueueSlice(Q[0], 2, LATEST, 10), QueueSlice(Q[1], 5, LATEST)),
            ("orders",),
            (Q[0], Q[1]),
        ),
        BatchTask(
            (QueueSlice(P[0], EARLIEST, LATEST), QueueSlice(P[1], EARLIEST, LATEST)),
            ("bills",),
            (P[0], P[1]),
        ),
    ]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), min_size=1, max_size=6),
    SPLITS,
    st.booleans(),
    st.booleans(),
)
def test_every_late_end_and_every_topic_has_exactly_one_reader(
    sizes: list[tuple[int, int]], split: Split, early: bool, late: bool
) -> None:
    queues = [
        PlannedQueue(q, a, a + n, is_start_late=early, is_end_late=late)
        for q, (a, n) in zip([*Q[:4], *P], sizes, strict=False)
    ]
    topics = sorted({known.queue.topic for known in queues}) if late else []
    tasks = plan_batch(queues, split, topics)
    assert sorted(t for task in tasks for t in task.unplanned_topics) == topics
    ends = Counter(s.queue for task in tasks for s in task.slices if s.end == LATEST)
    assert ends == Counter({known.queue: 1 for known in queues} if late else {})
    starts = Counter(s.queue for task in tasks for s in task.slices if s.start == EARLIEST)
    read = {known.queue for known in queues if late or known.end > known.start}
    assert starts == Counter(dict.fromkeys(read, 1) if early else {})
    for task in tasks:
        for topic in task.unplanned_topics:
            mine = {known.queue for known in queues if known.queue.topic == topic}
            assert mine <= set(task.planned_queues)
