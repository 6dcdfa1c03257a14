"""Dividing a batch read into tasks: late ends, and topics whose queues are not all known."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.planning.batch import (
    EARLIEST,
    LATEST,
    BatchTask,
    PlannedQueue,
    QueueSlice,
    plan_batch,
)
from pyspark_rocketmq.planning.split import Split
from rocketmq_wire.model import QueueId

Q = [QueueId("orders", "broker-a", index) for index in range(8)]
P = [QueueId("bills", "broker-a", index) for index in range(2)]
SPLITS = st.builds(
    Split,
    st.none() | st.integers(1, 30),
    st.none() | st.integers(1, 6),
    st.none() | st.integers(1, 50),
)


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
