"""Transactional writes through Spark: batches, and a stream whose commit Spark has forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq.transactions import answer_checks, finish_transactions
from rocketmq_broker_sim import Broker
from support.loader import Loader

Read = Callable[..., DataFrame]


def test_a_stream_that_replays_a_batch_shows_every_row_once(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str, read: Read, tmp_path: Path
) -> None:
    loader.create(topic, 2)
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    where = {"nameServer": broker.name_server, "delivery": "transactional"}
    spark.range(200, numPartitions=2).selectExpr("string(id) body").write.json(str(source))
    texts = spark.readStream.schema("body STRING").json(str(source))

    def run() -> None:
        writer = texts.writeStream.format("rocketmq").trigger(availableNow=True)
        writer = writer.options(**where, topic=topic, compression="zlib")
        assert writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination(120)

    run()
    for kept in (checkpoint / "commits").glob("*0*"):
        kept.unlink()
    run()
    spark.range(10).selectExpr("concat('batch-', id) body").write.format("rocketmq").options(
        **where, topic=topic
    ).mode("append").save()
    bodies = Counter(bytes(row.body).decode() for row in read().collect())
    expected = [*map(str, range(200)), *(f"batch-{n}" for n in range(10))]
    assert bodies == Counter(expected)
    assert finish_transactions(where) == 0
    with answer_checks(where, [topic]):
        pass
