"""Selection: topics by name or pattern, queues by assignment, numbers by queue."""

from __future__ import annotations

from typing import cast

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.kinds import Assigned, PerQueue
from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.planning.selection import (
    assigned_queues,
    matching_topics,
    named_topics,
    numbers_by_queue,
    selects,
)
from pyspark_rocketmq.read.batch_reader import plan_queues
from rocketmq_client.cluster import Cluster
from rocketmq_wire.model import QueueId
from support.fake_cluster import FakeCluster, FakeWorld

A = [QueueId("orders", "broker-a", index) for index in range(2)]
B = [QueueId("orders", "broker-b", index) for index in range(2)]


def test_a_pattern_matches_whole_names_and_never_the_clusters_own() -> None:
    topics = ["orders", "orders2", "xorders", "%RETRY%orders", "TBW102", "rmq_sys_orders"]
    topics.append("PYSPARK_DECISIONS")
    assert matching_topics("orders.*", topics) == ("orders", "orders2")
    assert matching_topics(".*orders", topics) == ("orders", "xorders")
    assert matching_topics(".*", topics) == ("orders", "orders2", "xorders")


def test_assigned_queues_that_do_not_exist_are_listed_apart() -> None:
    wanted = Assigned({"orders": {"broker-a": (0, 9)}, "gone": {None: (0,)}})
    found, missing = assigned_queues(wanted, {"orders": A})
    assert found == [A[0]]
    assert missing == [QueueId("gone", "?", 0), QueueId("orders", "broker-a", 9)]


def test_the_broker_may_be_left_out_only_where_there_is_one() -> None:
    wanted = Assigned({"orders": {None: (1,)}})
    assert assigned_queues(wanted, {"orders": A})[0] == [A[1]]
    with pytest.raises(OptionError, match="is on broker-a, broker-b"):
        assigned_queues(wanted, {"orders": [*A, *B]})


def test_numbers_name_every_queue_and_no_other() -> None:
    given = PerQueue({"orders": {"broker-a": {0: 5, 1: -2}}})
    assert numbers_by_queue("startingOffsets", given, A) == {A[0]: 5, A[1]: -2}
    missing = r"^\[ROCKETMQ_OPTION\.QUEUE_MISSING\].*leaves out topic=orders broker=broker-b"
    with pytest.raises(OptionError, match=missing):
        numbers_by_queue("startingOffsets", given, [*A, *B])
    with pytest.raises(OptionError, match=r"^\[ROCKETMQ_OPTION\.UNKNOWN_QUEUE\].*queue=1"):
        numbers_by_queue("startingOffsets", given, A[:1])


def test_numbers_without_a_broker_are_the_only_brokers() -> None:
    given = PerQueue({"orders": {None: {0: 5, 1: 6}}})
    assert numbers_by_queue("startingOffsets", given, A) == {A[0]: 5, A[1]: 6}
    with pytest.raises(OptionError, match="leaves out the broker"):
        numbers_by_queue("startingOffsets", given, [*A, *B])


def test_an_error_names_a_missing_queue_and_a_missing_broker_level() -> None:
    text = r"queue=1: use -2.*leaves out the level of brokers, taken to be broker-a"
    with pytest.raises(OptionError, match=text) as missing:
        numbers_by_queue("startingOffsets", PerQueue({"orders": {None: {0: 5}}}), A)
    assert str(missing.value).endswith('in full it is {"orders":{"broker-a":{"0":5,...}}}')
    with pytest.raises(OptionError, match=r"not read: .*queue=7.*leaves out the level of brokers"):
        numbers_by_queue("endingOffsets", PerQueue({"orders": {None: {0: 5, 1: 5, 7: 5}}}), A)
    with pytest.raises(OptionError, match="UNKNOWN_QUEUE") as unknown:
        numbers_by_queue("endingOffsets", PerQueue({"bills": {None: {0: 5}}}), A)
    assert "level of brokers" not in str(unknown.value)


def test_the_dead_letters_of_a_group_are_a_topic_of_their_own() -> None:
    options = read_options({"nameServer": "h:1", "deadLettersOf": "billing"})
    assert named_topics(options) == ("%DLQ%billing",)
    is_selected = selects(options)
    assert is_selected(QueueId("%DLQ%billing", "broker-a", 0))
    assert not is_selected(QueueId("%DLQ%other", "broker-a", 0))
    with pytest.raises(OptionError, match="excludes 'subscribe'"):
        read_options({"nameServer": "h:1", "deadLettersOf": "billing", "subscribe": "orders"})


def test_a_web_server_may_name_the_name_servers() -> None:
    url = "http://jmenv.example:8080/rocketmq/nsaddr"
    assert read_options({"nameServer": url}).connection.name_server == (url,)
    with pytest.raises(OptionError, match="must be host:port"):
        read_options({"nameServer": f"{url};10.0.0.1:9876"})


def test_a_batch_of_dead_letters_that_do_not_exist_is_empty() -> None:
    world = FakeWorld()
    options = read_options({"nameServer": "h:1", "deadLettersOf": "g"})
    cluster = cast(Cluster, FakeCluster(world))
    assert plan_queues(cluster, options) == []
    (queue,) = world.create("%DLQ%g", 1)
    world.put(queue, 3)
    (planned,) = plan_queues(cluster, options)
    assert (planned.queue, planned.start, planned.end) == (queue, 0, 3)
