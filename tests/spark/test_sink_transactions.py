"""Transactional writes through Spark: batches, and a stream whose commit Spark has forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq import drop_replays
from pyspark_rocketmq.sink.transactional.recovery import answer_checks, finish_transactions
from rocketmq_broker import Broker
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


@pytest.mark.parametrize("delivery", ["transactional", "at-least-once"])
def test_a_foreach_batch_that_runs_again_is_known_by_its_write_ids(
    spark: SparkSession,
    broker: Broker,
    loader: Loader,
    topic: str,
    read: Read,
    tmp_path: Path,
    delivery: str,
) -> None:
    """As when the driver dies behind save() and before Spark has written down that it is done."""
    loader.create(topic, 2)
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    spark.range(100, numPartitions=2).selectExpr("string(id) body").write.json(str(source))
    texts = spark.readStream.schema("body STRING").json(str(source))

    def save(frame: DataFrame, _: int) -> None:
        # Equal rows at equal row indexes: only the query names distinguish them.
        for name in ("first", "second"):
            writer = frame.write.format("rocketmq").option("nameServer", broker.name_server)
            writer = writer.options(topic=topic, delivery=delivery, writeId=name)
            writer.mode("append").save()

    def run() -> None:
        writer = texts.writeStream.foreachBatch(save).trigger(availableNow=True)
        assert writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination(120)

    run()
    for kept in (checkpoint / "commits").glob("*0*"):
        kept.unlink()
    run()
    rows = read(includeProperties="true")
    assert rows.count() == (200 if delivery == "transactional" else 400)
    bodies = Counter(bytes(row.body).decode() for row in drop_replays(rows).collect())
    assert bodies == Counter([*map(str, range(100))] * 2)


def test_a_job_that_runs_again_is_known_by_its_write_id(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str, read: Read
) -> None:
    loader.create(topic, 2)
    where = {"nameServer": broker.name_server, "topic": topic, "delivery": "transactional"}

    def write(write_id: str, count: int) -> None:
        rows = spark.range(count, numPartitions=2).selectExpr("string(id) body")
        writer = rows.write.format("rocketmq").options(**where, writeId=write_id)
        writer.mode("append").save()

    for _ in range(2):
        write("export/7", 10)
    with pytest.raises(PySparkException, match=r"ROCKETMQ_SINK\.WRITE_ID.* 10 rows, .* has 11"):
        write("export/7", 11)
    with pytest.raises(PySparkException, match=r"ROCKETMQ_SINK\.WRITE_ID.*follows 7"):
        write("export/6", 10)
    with pytest.raises(PySparkException, match=r"ROCKETMQ_OPTION.*'writeId' names by NAME"):
        write("export", 10)
    assert read().count() == 10
    write("export/8", 10)
    assert read().count() == 20
