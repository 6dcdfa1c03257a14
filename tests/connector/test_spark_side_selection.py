"""Selection: topics by name or pattern, queues by assignment, numbers by queue."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.option_kinds import Assigned, PerQueue
from pyspark_rocketmq.selection import assigned_queues, matching_topics, numbers_by_queue
from rocketmq_wire.model import QueueId

A = [QueueId("orders", "broker-a", index) for index in range(2)]
B = [QueueId("orders", "broker-b", index) for index in range(2)]


def test_a_pattern_matches_whole_names_and_never_the_clusters_own() -> None:
    topics = ["orders", "orders2", "xorders", "%RETRY%orders", "TBW102", "rmq_sys_orders"]
    assert matching_topics("orders.*", topics) == ("orders", "orders2")
    assert matching_topics(".*orders", topics) == ("orders", "xorders")
    assert matching_topics(".*", topics) == ("orders", "orders2", "xorders")


def test_assigned_queues_that_do_not_exist_are_told_apart() -> None:
    wanted = Assigned({"orders": {"broker-a": (0, 9)}, "gone": {None: (0,)}})
    found, missing = assigned_queues(wanted, {"orders": A})
    assert found == [A[0]]
    assert missing == [QueueId("gone", "?", 0), QueueId("orders", "broker-a", 9)]


def test_the_broker_may_be_left_out_only_where_there_is_one() -> None:
    wanted = Assigned({"orders": {None: (1,)}})
    assert assigned_queues(wanted, {"orders": A})[0] == [A[1]]
    with pytest.raises(OptionError, match="lives on broker-a, broker-b"):
        assigned_queues(wanted, {"orders": [*A, *B]})


def test_numbers_name_every_queue_and_no_other() -> None:
    given = PerQueue({"orders": {"broker-a": {0: 5, 1: -2}}})
    assert numbers_by_queue("startingOffsets", given, A) == {A[0]: 5, A[1]: -2}
    with pytest.raises(
        OptionError, match=r"QUEUE_MISSING\].*leaves out topic=orders broker=broker-b"
    ):
        numbers_by_queue("startingOffsets", given, [*A, *B])
    with pytest.raises(OptionError, match=r"UNKNOWN_QUEUE\].*queue=1"):
        numbers_by_queue("startingOffsets", given, A[:1])


def test_numbers_without_a_broker_are_the_only_brokers() -> None:
    given = PerQueue({"orders": {None: {0: 5, 1: 6}}})
    assert numbers_by_queue("startingOffsets", given, A) == {A[0]: 5, A[1]: 6}
    with pytest.raises(OptionError, match="leaves out the broker"):
        numbers_by_queue("startingOffsets", given, [*A, *B])
