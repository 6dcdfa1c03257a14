"""SQL: temporary views keep their options, tables take them where they are used."""

from __future__ import annotations

from collections.abc import Iterator

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
