"""A batch that was logged before a restart, compared with what the queues hold now."""

from __future__ import annotations

from typing import cast

import pytest

from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.read.recreated_topics import drop_recreated_queues
from rocketmq_client.cluster import Cluster
from rocketmq_wire.model import OffsetRange
from support.fake_cluster import FakeCluster, FakeWorld


def test_an_unavailable_broker_leaves_a_logged_batch_to_its_tasks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = FakeWorld()
    world.create("orders", 1)
    world.create("orders", 1, "broker-b")
    a, b = sorted(world.queues)
    for queue in (a, b):
        world.put(queue, 10)
    first_store_times = {queue: world.queues[queue].stored[0][0] for queue in (a, b)}
    planned = SourceOffset({a: 10, b: 10}, first_store_times=first_store_times)
    ranges = [OffsetRange(a, 0, 10), OffsetRange(b, 0, 10)]
    world.brokers_away.add(b.broker)
    cluster = cast("Cluster", FakeCluster(world))
    kept = drop_recreated_queues(cluster, ranges, planned.identities(), fail_on_data_loss=True)
    assert kept == ranges
    (line,) = [line for line in caplog.messages if line.startswith("cannot find out")]
    assert str(b) in line
