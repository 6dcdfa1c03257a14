"""The plugin's part for Spark: a session that finds the source, and streams as lists."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pytest_rocketmq import RocketMQ
from pytest_rocketmq.plugin import StreamCollector


def test_a_stream_is_collected_and_goes_on_at_its_checkpoint(
    spark: SparkSession,
    spark_rocketmq: SparkSession,
    rocketmq: RocketMQ,
    collect_stream: StreamCollector,
) -> None:
    assert spark_rocketmq is spark
    rocketmq.produce(["a", "b", "c"])
    reader = spark_rocketmq.readStream.format("rocketmq").options(**rocketmq.options)
    frame = reader.option("startingOffsets", "earliest").load()
    assert sorted(bytes(row.body) for row in collect_stream(frame, checkpoint="c")) == [
        b"a",
        b"b",
        b"c",
    ]
    rocketmq.produce(["d"])
    assert [bytes(row.body) for row in collect_stream(frame, checkpoint="c")] == [b"d"]
