"""The main road on every supported Spark line: `./run smoke-4.0` runs these on the oldest one."""

from __future__ import annotations

from collections.abc import Callable

import pyspark
import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rocketmq_broker import Broker
from support.frames import assert_bodies, assert_rows
from support.loader import Loader
from support.queries import Queries

pytestmark = pytest.mark.smoke

Read = Callable[..., DataFrame]


@pytest.mark.parametrize("over_grpc", [False, True], ids=["nameServer", "endpoints"])
def test_a_batch_read_gives_every_message_once(
    over_grpc: bool, broker: Broker, loader: Loader, topic: str, read: Read
) -> None:
    queues = loader.create(topic, 3)
    for queue in queues:
        loader.put(queue, 1_200)
    where = {"endpoints": broker.endpoints} if over_grpc else {}
    assert_rows(read(**where), loader.rows(*queues))


def test_columns_and_properties_arrive_with_their_types(
    loader: Loader, topic: str, read: Read
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 1, tag="T", properties={"colour": "blue"})
    (row,) = read(includeProperties="true").collect()
    assert (row.topic, row.brokerName, row.queueId, row.queueOffset) == (topic, "broker-a", 0, 0)
    assert (row.tags, row["keys"], row.properties["colour"]) == ("T", "k", "blue")
    assert row.bornTimestamp <= row.storeTimestamp
    (only,) = read(schema="queueOffset BIGINT, body BINARY").collect()
    assert (only.queueOffset, bytes(only.body)) == (0, b"%s/0" % topic.encode())


def test_a_stream_resumes_where_it_ended(loader: Loader, topic: str, queries: Queries) -> None:
    queues = loader.create(topic, 2)
    loader.put(queues[0], 300)
    first = queries.available(startingOffsets="earliest")
    loader.put(queues[1], 200)
    second = queries.available(startingOffsets="earliest")
    assert first.rows == loader.rows(queues[0])
    assert sorted(first.rows + second.rows) == loader.rows(*queues)


def test_a_running_stream_sees_what_arrives_and_commits_its_group(
    loader: Loader, topic: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 10)
    seen: list[int] = []

    def count(frame: DataFrame, _batch_id: int) -> None:
        seen.append(frame.count())

    frame = queries.load(startingOffsets="earliest", group=f"group-{topic}")
    query = queries.start(frame, count)
    queries.until(query, lambda: sum(seen) == 10)
    loader.put(queue, 5)
    queries.until(query, lambda: sum(seen) == 15)
    committed = loader.cluster.committed_offsets
    queries.until(query, lambda: committed(f"group-{topic}", [queue]) == {queue: 15})


def test_available_now_ends_by_itself_and_resumes(
    loader: Loader, topic: str, queries: Queries
) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 150)
    seen: list[int] = []

    def count(frame: DataFrame, _batch_id: int) -> None:
        seen.append(frame.count())

    def run() -> None:
        frame = queries.load(startingOffsets="earliest")
        query = queries.start(frame, count, availableNow=True)
        assert query.awaitTermination(120)

    run()
    assert sum(seen) == 300
    loader.put(queues[0], 20)
    run()
    assert sum(seen) == 320


def test_available_now_with_limits_reads_all_in_one_run_or_in_several(
    loader: Loader, topic: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 25)
    # Spark before 4.2 tells a Python source neither the trigger nor its limits: one batch a run.
    is_old = pyspark.__version__ < "4.2"
    start = 0
    for end in (10, 20, 25) if is_old else (25,):
        read = queries.available(startingOffsets="earliest", maxOffsetsPerTrigger="10").rows
        assert read == loader.rows(queue, start=start, end=end)
        start = end
    loader.put(queue, 5)
    rest = queries.available(minOffsetsPerTrigger="100").rows
    assert rest == loader.rows(queue, start=25)


@pytest.mark.parametrize("way", ["nameServer", "endpoints", "transactional"])
def test_a_batch_is_written_and_read_back(
    way: str, spark: SparkSession, broker: Broker, loader: Loader, topic: str, read: Read
) -> None:
    loader.create(topic, 3)
    given = {"endpoints": broker.endpoints} if way == "endpoints" else plain(broker)
    if way == "transactional":
        given["delivery"] = way
    frame = spark.range(500, numPartitions=2).selectExpr(
        "CAST(id AS STRING) body", "concat('k', id) keys", "IF(id % 2 = 0, 'even', 'odd') tags"
    )
    frame.write.format("rocketmq").options(**given, topic=topic).mode("append").save()
    assert_df_equality(texts(read()), frame, ignore_row_order=True, ignore_nullable=True)


@pytest.mark.parametrize("by", ["writeStream", "foreachBatch"])
def test_a_written_stream_resumes_where_it_ended(
    by: str, broker: Broker, loader: Loader, topic: str, queries: Queries, read: Read
) -> None:
    (source,) = loader.create(f"{topic}-source", 1)
    loader.create(topic, 2)
    given = {**plain(broker), "topic": topic}

    def write(batch: DataFrame, _batch_id: int) -> None:
        batch.write.format("rocketmq").options(**given).mode("append").save()

    def run() -> None:
        stream = queries.load(startingOffsets="earliest", subscribe=source.topic)
        frame = stream.selectExpr("CAST(body AS STRING) body", "keys", "tags")
        if by == "foreachBatch":
            query = queries.start(frame, write, availableNow=True)
        else:
            writer = frame.writeStream.format("rocketmq").options(**given)
            writer = writer.option("checkpointLocation", str(queries.folder / "checkpoint"))
            query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    loader.put(source, 40)
    if by == "writeStream" and pyspark.__version__.startswith("4.0."):
        with pytest.raises(PySparkException, match=r"ROCKETMQ_UNSUPPORTED\.SPARK_VERSION"):
            run()
        return
    run()
    loader.put(source, 40)
    run()
    sent = sorted(body.decode() for _, _, _, body in loader.rows(source))
    assert_bodies(read(), sent)
    assert len(sent) == 80


SENT = "body STRING, keys STRING, tags STRING"


def plain(broker: Broker) -> dict[str, str]:
    return {"nameServer": broker.name_server}


def texts(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("CAST(body AS STRING) body", "keys", "tags")


def test_a_view_is_read_and_written_by_sql(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str, read: Read
) -> None:
    loader.create(topic, 2)
    name = topic.replace("-", "_")
    options = f"nameServer '{broker.name_server}', topic '{topic}'"
    try:
        spark.sql(f"CREATE TEMPORARY VIEW {name} USING rocketmq OPTIONS ({options})")
        spark.sql(
            f"CREATE TEMPORARY VIEW {name}_out (body STRING, keys STRING) "
            f"USING rocketmq OPTIONS ({options})"
        )
        spark.sql(f"INSERT INTO {name}_out VALUES ('1', 'a'), ('2', 'b')")
        (row,) = spark.sql(f"SELECT CAST(body AS STRING) b FROM {name} WHERE keys = 'b'").collect()
    finally:
        spark.catalog.dropTempView(name)
        spark.catalog.dropTempView(f"{name}_out")
    assert row.b == "2"
    assert_rows(texts(read()), [("1", "a", None), ("2", "b", None)], SENT)


def test_an_unknown_option_is_refused_with_the_nearest_known_one(read: Read) -> None:
    with pytest.raises(PySparkException, match="startingOffsets"):
        read(startingOfsets="latest").count()
