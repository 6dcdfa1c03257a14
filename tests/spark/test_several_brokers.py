"""Three brokers of one cluster, in processes: batch, stream and group over all that are there."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from rocketmq_cli.support.broker_process import BrokerProcess
from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import TopicConfig
from support.consuming import Collector, Topic, settings_of, until

ALL = ["broker-a", "broker-b", "broker-c"]


def write(spark: SparkSession, topic: Topic, start: int, end: int) -> set[bytes]:
    """Write numbers by Spark, in turn to all queues that the topic has now."""
    with open_cluster(topic.connection) as cluster:
        queues = cluster.queues(topic.name)
    rows = [
        (str(number).encode(), queue.broker, queue.index)
        for number, queue in zip(range(start, end), itertools.cycle(queues), strict=False)
    ]
    frame = spark.createDataFrame(rows, "body BINARY, brokerName STRING, queueId INT")
    writer = frame.write.format("rocketmq").option("nameServer", topic.connection.cluster_address)
    writer.option("topic", topic.name).mode("append").save()
    return {body for body, _, _ in rows}


def test_batch_stream_and_group_follow_brokers_that_come_and_go(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("support.consuming.SECONDS_MAX", 120)
    with ExitStack() as stack:
        first = stack.enter_context(BrokerProcess(tmp_path / "broker-a"))
        where = first.name_server

        def add(name: str) -> BrokerProcess:
            options = ("--name-server", where, "--broker-name", name)
            return stack.enter_context(BrokerProcess(tmp_path / name, *options))

        _, killed = add("broker-b"), add("broker-c")
        topic = Topic(ConnectionSettings((where,)), "orders", 2)
        source = {"nameServer": where, "subscribe": topic.name}
        sent = write(spark, topic, 0, 120)
        batch = spark.read.format("rocketmq").options(**source).load()
        assert {bytes(row.body) for row in batch.collect()} == sent
        assert sorted(row[0] for row in batch.select("brokerName").distinct().collect()) == ALL

        rows: set[bytes] = set()

        def take(frame: DataFrame, _: int) -> None:
            rows.update(bytes(row.body) for row in frame.select("body").collect())

        # Queries and members ask for routes more often than by default, so that the test is short.
        stream = spark.readStream.format("rocketmq").options(**source, discoveryIntervalMs="1000")
        writer = stream.option("startingOffsets", "earliest").load().writeStream
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.foreachBatch(take).start()
        stack.callback(query.stop)
        settings = settings_of(topic, route_ms=500, rebalance_ms=500)
        listener = Collector()
        members = [
            stack.enter_context(PushConsumer(topic.connection, settings, listener))
            for _ in range(2)
        ]

        def owners() -> list[str]:
            """The brokers of the members' queues."""
            queues = [queue for member in members for queue in member.queues]
            return sorted(queue.broker for queue in queues if queue.topic == topic.name)

        until(lambda: owners() == sorted(ALL * 2))
        until(lambda: rows == sent == set(listener.bodies))

        killed.kill()
        until(lambda: owners() == ["broker-a"] * 2 + ["broker-b"] * 2)
        sent |= write(spark, topic, 120, 160)

        add("broker-d")
        with open_cluster(topic.connection) as cluster:
            cluster.create_topic(TopicConfig(topic.name, 2, 2), "broker-d")
            until(lambda: owners() == sorted(["broker-a", "broker-b", "broker-d"] * 2))
            sent |= write(spark, topic, 160, 280)
            ends = cluster.bounds([q for q in cluster.queues(topic.name) if q.broker == "broker-d"])
            assert all(bounds.end > 0 for bounds in ends.values())  # type: ignore[union-attr]

        killed.start()
        until(lambda: owners() == sorted([*ALL, "broker-d"] * 2))
        until(lambda: rows == sent == set(listener.bodies))
        assert query.exception() is None
        assert {bytes(row.body) for row in batch.collect()} == sent
