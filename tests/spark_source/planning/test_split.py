"""Dividing ranges into tasks."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.planning.split import Split, divide
from rocketmq_wire.model import OffsetRange, QueueId

Q = [QueueId("orders", "broker-a", index) for index in range(8)]


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
