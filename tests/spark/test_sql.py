"""SQL: temporary views keep their options, tables take them where they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rocketmq_broker_sim import Broker
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


def numbers(frame: DataFrame) -> list[str]:
    return sorted(row[0] for row in frame.selectExpr("CAST(body AS STRING)").collect())


def test_a_temporary_view_is_read_and_written(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str, name: str
) -> None:
    loader.create(topic, 2)
    options = f"nameServer '{broker.name_server}', subscribe '{topic}'"
    spark.sql(f"CREATE TEMPORARY VIEW {name} USING rocketmq OPTIONS ({options})")
    # A view that is written to takes the columns of messages, by place as INSERT INTO does.
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
    assert numbers(spark.table(name)) == ["1", "2", "3"]
    assert numbers(spark.sql(f"SELECT * FROM {name} WHERE keys = 'c'")) == ["3"]
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
    assert numbers(frame) == ["1", "2"]


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
    assert numbers(spark.sql(f"SELECT * FROM {name} WITH ({written})")) == wanted
    assert numbers(spark.read.options(**given).table(name)) == wanted
    assert spark.readStream.options(**given).table(name).isStreaming
    streamed = spark.sql(
        f"SELECT * FROM STREAM {name} WITH ({written}, startingOffsets='earliest')"
    )
    assert streamed.isStreaming
    rows: list[DataFrame] = []
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
    assert numbers(read()) == ["1", "2", "3"]
    assert sorted(row["keys"] for row in read().collect()) == ["a", "b", "c"]


def test_a_table_without_options_is_not_inserted_into(
    spark: SparkSession, outbox: str, read: Read
) -> None:
    with pytest.raises(PySparkException, match=r"(?s)'nameServer'.*INSERT INTO t WITH \("):
        spark.sql(f"INSERT INTO {outbox} VALUES ('1', 'a')")
    assert numbers(read()) == []


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
    assert numbers(read()) == ["1"]


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
    assert numbers(read()) == ["1", "2"]
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
    assert numbers(read()) == ["1", "2", *(f"{other}/{number}" for number in range(3))]
