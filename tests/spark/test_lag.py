"""Lag: how many messages and seconds a query is behind, from its progress."""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

from pyspark_rocketmq import Lag, LagListener, measure_lag
from rocketmq_broker import Broker
from support.loader import Loader
from support.queries import Batches, Queries


def test_lag_of_the_last_query_progress(
    broker: Broker, loader: Loader, topic: str, queries: Queries
) -> None:
    queues = loader.create(topic, 2)
    loader.put(queues[0], 30)
    frame = queries.load(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    query = queries.start(frame, Batches(), processingTime="1 hour")
    queries.until(query, lambda: query.lastProgress is not None)
    progress = query.lastProgress
    lag = measure_lag(progress)
    assert lag.messages == 20
    assert {queue.index: behind.messages for queue, behind in lag.queues.items()} == {0: 20, 1: 0}
    assert lag.seconds is None
    loader.put(queues[1], 2)
    fresh = measure_lag(progress, {"nameServer": broker.name_server})
    assert fresh.messages == 22
    stored_ms = loader.cluster.store_time_at(queues[0], 10)
    assert stored_ms is not None
    assert fresh.seconds is not None
    assert 0 <= fresh.seconds <= time.time() - stored_ms / 1_000 + 1


def test_the_listener_reports_each_batch(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 30)
    reports: list[Lag] = []
    options = {"nameServer": broker.name_server}
    listener = LagListener(options, lambda _query, lag: reports.append(lag))
    spark.streams.addListener(listener)
    try:
        queries.available(startingOffsets="earliest", maxOffsetsPerTrigger="10")
        for _ in range(100):
            if len(reports) >= 3:
                break
            time.sleep(0.05)
        assert [lag.messages for lag in reports[:3]] == [20, 10, 0]
        assert reports[2].seconds == 0.0
    finally:
        spark.streams.removeListener(listener)
