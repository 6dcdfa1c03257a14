"""SQL: temporary views keep their options, tables take them where they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from rocketmq_broker import Broker
from support.frames import assert_bodies, assert_rows
from support.loader import Loader
from support.queries import Queries


@pytest.fixture
def name(spark: SparkSession, topic: str) -> Iterator[str]:
    """A name for a table or view, gone after the test."""
    name = topic.replace("-", "_")
    yield name
    spark.catalog.dropTempView(name)
    spark.sql(f"DROP TABLE IF EXISTS {name}")


Read = Callable[..., DataFrame]


def test_a_temporary_view_is_read_and_written(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str, name: str
) -> None:
    loader.create(topic, 2)
    options = f"nameServer '{broker.name_server}', subscribe '{topic}'"
    spark.sql(f"CREATE TEMPORARY VIEW {name} USING rocketmq OPTIONS ({options})")
    # A view that is written to takes the columns of messages, by position as INSERT INTO does.
    sink = f"{name}_sink"
    spark.sql(
        f"CREATE TEMPORARY VIEW {sink} (body STRING, keys STRING) "
        f"USING rocketmq OPTIONS ({options})"
    )
    try:
        spark.sql(f"INSERT INTO {sink} VALUES ('1', 'a'), ('2', 'b')")
        spark.sql(f"INSERT INTO {sink} SELECT '3', 'c'")
    finally:
        spark.catalog.dropTempView(sink)
    assert_bodies(spark.table(name), ["1", "2", "3"])
    assert_bodies(spark.sql(f"SELECT * FROM {name} WHERE keys = 'c'"), ["3"])
    with pytest.raises(PySparkException, match="not a temp view of streaming logical plan"):
        spark.sql(f"SELECT * FROM STREAM {name}")


def test_another_thread_than_the_main_one_writes_by_sql(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str, name: str
) -> None:
    """Spark itself finds no Python sink for `save()` there."""
    loader.create(topic, 2)
    options = f"nameServer '{broker.name_server}', subscribe '{topic}'"
    spark.sql(f"CREATE TEMPORARY VIEW {name} (body STRING) USING rocketmq OPTIONS ({options})")
    with ThreadPoolExecutor(2) as threads:
        writes = [threads.submit(spark.sql, f"INSERT INTO {name} VALUES ('{n}')") for n in (1, 2)]
        for write in writes:
            write.result(60)
    frame = (
        spark.read.format("rocketmq").options(nameServer=broker.name_server, subscribe=topic).load()
    )
    assert_bodies(frame, ["1", "2"])


def test_a_table_takes_its_options_where_it_is_used(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str, name: str, queries: Queries
) -> None:
    queues = loader.create(topic, 1)
    loader.put(queues[0], 3)
    given = {"nameServer": broker.name_server, "subscribe": topic}
    written = ", ".join(f"{key}='{value}'" for key, value in given.items())
    listed = ", ".join(f"{key} '{value}'" for key, value in given.items())
    spark.sql(f"CREATE TABLE {name} USING rocketmq OPTIONS ({listed})")
    with pytest.raises(PySparkException, match=r"(?s)'nameServer'.*CREATE TABLE.*FROM t WITH \("):
        spark.sql(f"SELECT * FROM {name}").collect()
    with pytest.raises(PySparkException, match="CREATE_PIPELINE_DATASET_QUERY_EXECUTION"):
        spark.sql(f"CREATE STREAMING TABLE {name}_kept AS SELECT * FROM STREAM {name}")
    wanted = [f"{topic}/{number}" for number in range(3)]
    assert_bodies(spark.sql(f"SELECT * FROM {name} WITH ({written})"), wanted)
    assert_bodies(spark.read.options(**given).table(name), wanted)
    assert spark.readStream.options(**given).table(name).isStreaming
    streamed = spark.sql(
        f"SELECT * FROM STREAM {name} WITH ({written}, startingOffsets='earliest')"
    )
    assert streamed.isStreaming
    rows: list[Row] = []
    query = queries.start(
        streamed, lambda frame, _: rows.extend(frame.collect()), availableNow=True
    )
    assert query.awaitTermination(120)
    assert len(rows) == 3


@pytest.fixture
def outbox(spark: SparkSession, loader: Loader, topic: str, name: str) -> str:
    """A table that is written to, without options, as Spark forgets those of CREATE TABLE."""
    loader.create(topic, 2)
    spark.sql(f"CREATE TABLE {name} (body STRING, keys STRING) USING rocketmq")
    return name


def test_a_table_is_inserted_into_with_options(
    spark: SparkSession, broker: Broker, topic: str, outbox: str, read: Read
) -> None:
    given = f"nameServer='{broker.name_server}', topic='{topic}'"
    spark.sql(f"INSERT INTO {outbox} WITH ({given}) VALUES ('1', 'a'), ('2', 'b')")
    spark.sql(f"INSERT INTO {outbox} WITH ({given}) SELECT '3', 'c'")
    assert_pairs(read(), [("1", "a"), ("2", "b"), ("3", "c")])


def test_a_table_without_options_is_not_inserted_into(
    spark: SparkSession, outbox: str, read: Read
) -> None:
    with pytest.raises(PySparkException, match=r"(?s)'nameServer'.*INSERT INTO t WITH \("):
        spark.sql(f"INSERT INTO {outbox} VALUES ('1', 'a')")
    advice = r"(?s)'nameServer'.*table.*df\.writeTo\('t'\)\.options\(\.\.\.\)\.append\(\)"
    frame = spark.createDataFrame([("1", "a")], "body STRING, keys STRING")
    with pytest.raises(PySparkException, match=advice):
        spark.sql(f"INSERT INTO {outbox} WITH (topic='x') VALUES ('1', 'a')")
    with pytest.raises(PySparkException, match=advice):
        frame.writeTo(outbox).option("topic", "x").append()
    assert_bodies(read(), [])


def test_a_table_is_never_overwritten(
    spark: SparkSession, broker: Broker, topic: str, outbox: str, read: Read
) -> None:
    given = f"nameServer='{broker.name_server}', topic='{topic}'"
    spark.sql(f"INSERT INTO {outbox} WITH ({given}) VALUES ('1', 'a')")
    with pytest.raises(PySparkException, match=r"ROCKETMQ_UNSUPPORTED\.SAVE_MODE"):
        spark.sql(f"INSERT OVERWRITE {outbox} WITH ({given}) VALUES ('2', 'b')")
    spark.sql(
        f"CREATE TEMPORARY VIEW {outbox}_view (body STRING, keys STRING) USING rocketmq "
        f"OPTIONS (nameServer '{broker.name_server}', topic '{topic}')"
    )
    try:
        with pytest.raises(PySparkException, match=r"ROCKETMQ_UNSUPPORTED\.SAVE_MODE"):
            spark.sql(f"INSERT OVERWRITE {outbox}_view VALUES ('2', 'b')")
    finally:
        spark.catalog.dropTempView(f"{outbox}_view")
    assert_bodies(read(), ["1"])


def test_frames_and_streams_are_written_to_a_table(
    spark: SparkSession,
    broker: Broker,
    loader: Loader,
    topic: str,
    outbox: str,
    read: Read,
    tmp_path: Path,
) -> None:
    given = {"nameServer": broker.name_server, "topic": topic}
    frame = spark.createDataFrame([("1", "a"), ("2", "b")], "body STRING, keys STRING")
    frame.writeTo(outbox).options(**given).append()
    assert_bodies(read(), ["1", "2"])
    other = f"{topic}-source"
    (queue,) = loader.create(other, 1)
    loader.put(queue, 3)
    stream = spark.readStream.format("rocketmq").options(**given, startingOffsets="earliest")
    query = (
        stream.option("topic", other)
        .load()
        .selectExpr("CAST(body AS STRING) body", "keys")
        .writeStream.options(**given)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .toTable(outbox)
    )
    assert query.awaitTermination(120)
    assert_bodies(read(), ["1", "2", *(f"{other}/{number}" for number in range(3))])


SWAPPED = "keys STRING, body STRING"


def assert_pairs(frame: DataFrame, pairs: list[tuple[str, str | None]]) -> None:
    found = frame.selectExpr("CAST(body AS STRING) AS body", "keys")
    assert_rows(found, pairs, "body STRING, keys STRING")


def test_rows_are_inserted_by_name_into_a_table_and_a_view(
    spark: SparkSession, broker: Broker, topic: str, outbox: str, read: Read
) -> None:
    given = f"nameServer='{broker.name_server}', topic='{topic}'"
    spark.sql(f"INSERT INTO {outbox} WITH ({given}) BY NAME SELECT 'a' AS keys, '1' AS body")
    spark.sql(f"INSERT INTO {outbox} WITH ({given}) (keys, body) SELECT 'b', '2'")
    # A column that is not named is null, as in any table.
    spark.sql(f"INSERT INTO {outbox} WITH ({given}) BY NAME SELECT '3' AS body")
    view = f"{outbox}_view"
    spark.sql(
        f"CREATE TEMPORARY VIEW {view} ({SWAPPED}) USING rocketmq "
        f"OPTIONS (nameServer '{broker.name_server}', topic '{topic}')"
    )
    try:
        spark.sql(f"INSERT INTO {view} BY NAME SELECT '4' AS body, 'd' AS keys")
    finally:
        spark.catalog.dropTempView(view)
    assert_pairs(read(), [("1", "a"), ("2", "b"), ("3", None), ("4", "d")])


def test_insert_into_takes_its_options_beside_the_format_alone(
    spark: SparkSession, broker: Broker, topic: str, outbox: str, read: Read
) -> None:
    given = {"nameServer": broker.name_server, "topic": topic}
    frame = spark.createDataFrame([("1", "a")], "body STRING, keys STRING")
    # By position, as INSERT INTO does.
    swapped = spark.createDataFrame([("2", "b")], SWAPPED)
    advice = r"(?s)'nameServer'.*insertInto.*df\.writeTo\('t'\)\.options\(\.\.\.\)\.append\(\)"
    with pytest.raises(PySparkException, match=advice):
        frame.write.options(**given).insertInto(outbox)
    assert_pairs(read(), [])
    for rows in (frame, swapped):
        rows.write.format("rocketmq").options(**given).insertInto(outbox)
    assert_pairs(read(), [("1", "a"), ("2", "b")])


def test_a_frame_is_saved_as_a_table_that_is_new_or_there(
    spark: SparkSession, broker: Broker, topic: str, outbox: str, read: Read
) -> None:
    given = {"nameServer": broker.name_server, "topic": topic}
    frame = spark.createDataFrame([("a", "1")], SWAPPED)
    writer = frame.write.format("rocketmq").options(**given)
    writer.mode("append").saveAsTable(outbox)
    made = [f"{outbox}_{number}" for number in range(2)]
    try:
        frame.write.format("rocketmq").options(**given).saveAsTable(made[0])
        frame.writeTo(made[1]).using("rocketmq").options(**given).create()
        # By name, into what is there and what is made.
        assert_pairs(read(), [("1", "a")] * 3)
        for name in made:
            frame.writeTo(name).options(**given).append()
            assert spark.read.options(**given).table(name).columns == ["keys", "body"]
        assert_pairs(read(), [("1", "a")] * 5)
        with pytest.raises(PySparkException, match="ALREADY_EXISTS"):
            frame.write.format("rocketmq").options(**given).saveAsTable(made[0])
        with pytest.raises(PySparkException, match=r"(?s)'path' has no meaning.*saveAsTable\(\)"):
            writer.option("path", "/tmp/box").saveAsTable(f"{outbox}_elsewhere")
        with pytest.raises(PySparkException, match=r"SAVE_MODE.*\.mode\('append'\)"):
            frame.write.format("rocketmq").options(**given).mode("overwrite").saveAsTable(made[0])
        with pytest.raises(PySparkException, match="SAVE_MODE"):
            spark.sql(f"CREATE OR REPLACE TABLE {made[1]} USING rocketmq AS SELECT '1' AS body")
        # Spark has dropped the tables by then, and nothing of the topic.
        assert not any(map(spark.catalog.tableExists, made))
        assert_pairs(read(), [("1", "a")] * 5)
    finally:
        for name in made:
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_create_table_as_select_says_how_to_write_instead(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str, name: str, read: Read
) -> None:
    loader.create(topic, 1)
    options = f"OPTIONS (nameServer '{broker.name_server}', topic '{topic}')"
    advice = r"(?s)'nameServer'.*forgets the OPTIONS of CREATE TABLE.*INSERT INTO t WITH \("
    with pytest.raises(PySparkException, match=advice):
        spark.sql(f"CREATE TABLE {name} USING rocketmq {options} AS SELECT '1' AS body")
    with pytest.raises(PySparkException, match=r"ROCKETMQ_UNSUPPORTED\.SAVE_MODE"):
        spark.sql(f"CREATE OR REPLACE TABLE {name} USING rocketmq {options} AS SELECT '1' AS body")
    assert not spark.catalog.tableExists(name)
    assert_bodies(read(), [])


def test_updates_of_a_stream_are_refused_by_spark_and_written_in_foreach_batch(
    spark: SparkSession,
    broker: Broker,
    loader: Loader,
    topic: str,
    outbox: str,
    read: Read,
    queries: Queries,
) -> None:
    other = f"{topic}-source"
    (queue,) = loader.create(other, 1)
    loader.put(queue, 3)
    given = {"nameServer": broker.name_server, "topic": topic}
    counts = (
        spark.readStream.format("rocketmq")
        .options(nameServer=broker.name_server, topic=other, startingOffsets="earliest")
        .load()
        .groupBy("topic")
        .count()
        .selectExpr("CAST(count AS STRING) body", "topic AS keys")
    )
    writer = counts.writeStream.outputMode("update").trigger(availableNow=True)

    def ended(writer: DataStreamWriter, folder: str, start: Callable[..., StreamingQuery]) -> None:
        query = start(writer.option("checkpointLocation", str(queries.folder / folder)))
        assert query.awaitTermination(120)

    def save(batch: DataFrame, _batch_id: int) -> None:
        sink = batch.write.format("rocketmq").options(**given, writeId="counts")
        sink.mode("append").save()

    refused = "rocketmq does not support Update mode"
    with pytest.raises(PySparkException, match=refused):
        ended(writer.format("rocketmq").options(**given), "format", lambda w: w.start())
    with pytest.raises(PySparkException, match=refused):
        ended(writer.options(**given), "table", lambda w: w.toTable(outbox))
    assert_pairs(read(), [])
    ended(writer, "batches", lambda w: w.foreachBatch(save).start())
    assert_pairs(read(), [("3", other)])


def test_a_path_is_refused_wherever_a_user_gives_one(
    spark: SparkSession, broker: Broker, topic: str, outbox: str, read: Read, tmp_path: Path
) -> None:
    given = {"nameServer": broker.name_server, "topic": topic}
    frame = spark.createDataFrame([("1", "a")], "body STRING, keys STRING")
    with pytest.raises(
        PySparkException, match=r"'path' has no meaning in a write.*\.option\('topic'"
    ):
        frame.write.format("rocketmq").options(**given).mode("append").save(str(tmp_path))
    with pytest.raises(PySparkException, match=r"'path' has no meaning in a read.*'subscribe'"):
        spark.read.format("rocketmq").options(**given).load(str(tmp_path))
    with pytest.raises(PySparkException, match=r"'path' has no meaning in a read.*'subscribe'"):
        spark.readStream.format("rocketmq").options(**given).load(str(tmp_path))
    assert_pairs(read(), [])
    # Spark decides where a table is stored.
    listed = ", ".join(f"{key} '{value}'" for key, value in given.items())
    name = f"{outbox}_placed"
    spark.sql(f"CREATE TABLE {name} USING rocketmq OPTIONS ({listed}) LOCATION '{tmp_path}'")
    try:
        assert spark.read.options(**given).table(name).count() == 0
    finally:
        spark.sql(f"DROP TABLE {name}")
