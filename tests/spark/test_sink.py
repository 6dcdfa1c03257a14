"""Writes through a real Spark session onto the bundled broker, read back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from pyspark_rocketmq import drop_replays
from rocketmq_broker import Broker
from support.loader import Loader
from support.queries import Queries

Read = Callable[..., DataFrame]
Write = Callable[..., None]


@pytest.fixture(params=["nameServer", "endpoints"])
def where(request: pytest.FixtureRequest, broker: Broker) -> dict[str, str]:
    """The options of each transport."""
    return {
        "nameServer": {"nameServer": broker.name_server},
        "endpoints": {"endpoints": broker.endpoints},
    }[request.param]


def write(frame: DataFrame, where: dict[str, str], mode: str = "append", **options: str) -> None:
    frame.write.format("rocketmq").options(**where, **options).mode(mode).save()


def test_rows_come_back_as_they_were_written(
    spark: SparkSession, where: dict[str, str], loader: Loader, topic: str, read: Read
) -> None:
    loader.create(topic, 4)
    frame = spark.range(5_000, numPartitions=2).select(
        sf.expr("concat('body-', id, repeat('x', IF(id % 9 = 0, 5000, 0)))").alias("body"),
        sf.when(sf.col("id") % 3 > 0, sf.concat(sf.lit("k"), "id")).alias("keys"),
        sf.when(sf.col("id") % 2 > 0, sf.lit("odd")).alias("tags"),
        sf.create_map(sf.lit("n"), sf.col("id").cast("string")).alias("properties"),
    )
    write(frame, where, topic=topic, maxBatchBytes="50k", compression="zlib")
    found = read(includeProperties="true")
    columns = found.select(
        sf.col("body").cast("string"), "keys", "tags", sf.col("properties")["n"].alias("n")
    )
    wanted = frame.select("body", "keys", "tags", sf.col("properties")["n"].alias("n"))
    assert_df_equality(columns, wanted, ignore_row_order=True, ignore_nullable=True)
    assert found.select("queueId").distinct().count() == 4
    assert read("sysFlag INT").where("sysFlag & 769 = 769").count() == 556
    row_ids = found.select(sf.col("properties")["PYSPARK_ROW"], sf.col("properties")["UNIQ_KEY"])
    assert row_ids.distinct().count() == 5_000


def test_groups_and_named_queues_keep_their_rows_in_order(
    spark: SparkSession, where: dict[str, str], loader: Loader, topic: str, read: Read
) -> None:
    loader.create(topic, 4)
    frame = spark.range(3_000, numPartitions=1).select(
        sf.col("id").cast("string").cast("binary").alias("body"),
        sf.when(sf.col("id") % 4 > 0, sf.concat(sf.lit("order-"), sf.col("id") % 7)).alias(
            "messageGroup"
        ),
        sf.when(sf.col("id") % 4 == 0, sf.lit(2)).alias("queueId"),
        sf.lit(topic).alias("topic"),
    )
    write(frame, where, maxBatchBytes="10k")
    rows = read(includeProperties="true").orderBy("queueId", "queueOffset").collect()
    assert len(rows) == 3_000
    seen: dict[str, list[Row]] = {}
    for row in rows:
        seen.setdefault(row.properties.get("__SHARDINGKEY", "by queue"), []).append(row)
    assert len(seen) == 8
    assert {row.queueId for row in seen["by queue"]} == {2}
    for group in seen.values():
        numbers = [int(row.body) for row in group]
        assert numbers == sorted(numbers)
        assert len({row.queueId for row in group}) == 1


def test_delayed_rows_come_later_than_those_behind_them(
    spark: SparkSession, where: dict[str, str], loader: Loader, topic: str, read: Read
) -> None:
    (queue,) = loader.create(topic, 1)
    frame = spark.range(10, numPartitions=1).selectExpr(
        "CAST(id AS STRING) body", "IF(id < 3, 1, 0) delayLevel"
    )
    write(frame, where, topic=topic)
    loader.await_end(queue, 10)
    rows = read(includeProperties="true").orderBy("queueOffset").collect()
    assert [int(row.body) for row in rows[:7]] == list(range(3, 10))
    assert sorted(int(row.body) for row in rows[7:]) == [0, 1, 2]
    assert [row.properties.get("DELAY") for row in rows] == [None] * 7 + ["1"] * 3


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        ("'x' body, 'a' tag", {}, "column 'tag'.*did you mean 'tags'"),
        ("1 body", {}, "'body' must be string or binary, not int"),
        ("'x' body, 1 messageGroup", {}, "'messageGroup' must be string, not int"),
        ("'a' tags", {}, "column 'body' is missing"),
        ("'x' body", {"topic": "a,b"}, "must name one topic"),
        ("'x' body", {"pullBatchSize": "32"}, "no meaning in a write"),
        ("'x' body", {"sendBack": "true"}, "needs the option 'group'"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_sent(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    columns: str,
    options: dict[str, str],
    complaint: str,
) -> None:
    frame = spark.sql(f"SELECT {columns}")
    with pytest.raises(PySparkException, match=f"(?s){complaint}"):
        write(frame, {"nameServer": broker.name_server, "topic": topic, **options})


def test_a_transactional_row_cannot_be_delayed(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str
) -> None:
    (queue,) = loader.create(topic, 1)
    where = {"nameServer": broker.name_server, "topic": topic, "delivery": "transactional"}
    with pytest.raises(PySparkException, match=r"(?s)SINK\.ROW.*a transactional message cannot"):
        write(spark.sql("SELECT 'x' body, 1 delayLevel"), where)
    assert loader.cluster.topic_stats(topic)[queue].end == 0


def test_modes_that_make_no_sense_say_what_to_write(
    spark: SparkSession, broker: Broker, topic: str, queries: Queries
) -> None:
    where = {"nameServer": broker.name_server, "topic": topic}
    frame = spark.sql("SELECT 'x' body")
    with pytest.raises(PySparkException, match=r"ROCKETMQ_UNSUPPORTED\.SAVE_MODE.*'append'"):
        write(frame, where, "overwrite")
    counts = (
        spark.readStream.format("rate").load().groupBy().count().selectExpr("string(count) body")
    )
    stream = counts.writeStream.format("rocketmq").options(**where).outputMode("complete")
    query = stream.option("checkpointLocation", str(queries.folder / "modes")).start()
    with pytest.raises(PySparkException, match=r"ROCKETMQ_UNSUPPORTED\.OUTPUT_MODE.*foreachBatch"):
        query.awaitTermination(60)
    query.stop()


def test_a_failed_send_on_the_last_row_fails_the_write(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str
) -> None:
    """Over TCP: the gRPC service stores records of this size, see test_sink_tasks."""
    where = {"nameServer": broker.name_server}
    loader.create(topic, 1)
    frame = spark.range(1_000, numPartitions=1).selectExpr(
        "repeat('x', IF(id = 999, 9000000, 10)) body"
    )
    with pytest.raises(PySparkException, match=r"ROCKETMQ|larger|bytes"):
        write(frame, where, topic=topic)


def test_a_stream_replayed_in_another_order_loses_nothing_and_repeats_little(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str, read: Read, tmp_path: Path
) -> None:
    """The batch's commit is taken from the checkpoint: the next run writes the batch again."""
    loader.create(topic, 2)
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    spark.range(200, numPartitions=1).selectExpr("string(id % 50) body").write.json(str(source))
    texts = spark.readStream.schema("body STRING").json(str(source))

    def run(frame: DataFrame) -> None:
        writer = frame.writeStream.format("rocketmq").trigger(availableNow=True)
        writer = writer.option("nameServer", broker.name_server).option("topic", topic)
        assert writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination(120)

    run(texts)
    for kept in (checkpoint / "commits").glob("*0*"):
        kept.unlink()
    (file,) = source.glob("part-*.json")
    lines = file.read_text().splitlines()
    # The same rows, the first half of them in another order.
    changed = [*reversed(lines[:100]), *lines[100:]]
    file.write_text("\n".join(changed) + "\n")
    for checksum in source.glob(".*.crc"):
        checksum.unlink()
    run(texts)
    everything = read(includeProperties="true")
    assert everything.count() == 400
    kept_rows = [bytes(row.body).decode() for row in drop_replays(everything).collect()]
    counts = {text: kept_rows.count(text) for text in set(kept_rows)}
    # A row at the same row index both times is there once; the rest may be there twice.
    moved = sum(a != b for a, b in zip(lines, changed, strict=True))
    assert len(kept_rows) == 200 + moved
    assert all(counts[str(number)] >= 4 for number in range(50))


def test_rows_of_other_producers_are_no_replays(loader: Loader, topic: str, read: Read) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 20)
    assert drop_replays(read(includeProperties="true")).count() == 20
