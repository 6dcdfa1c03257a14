"""Rows that could not be worked on go back to their group: again later, in the end to the dead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_rocketmq import drop_replays
from rocketmq_broker import Broker
from rocketmq_cli.main import main
from rocketmq_wire.model import QueueId
from support.loader import Loader

Read = Callable[..., DataFrame]
COLUMNS = """topic STRING, brokerName STRING, queueId INT, queueOffset BIGINT, body BINARY,
    msgId STRING, physicalOffset BIGINT, reconsumeTimes INT, properties MAP<STRING, STRING>"""


def send_back(frame: DataFrame, broker: Broker, group: str, **options: str) -> None:
    writer = frame.write.format("rocketmq").option("nameServer", broker.name_server)
    writer.options(sendBack="true", group=group, **options).mode("append").save()


def test_failed_rows_come_again_and_end_with_the_dead_letters(
    broker: Broker, loader: Loader, topic: str, read: Read
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 20)
    group = f"group-{topic}"
    retry, dead = QueueId(f"%RETRY%{group}", queue.broker, 0), f"%DLQ%{group}"
    # As in a foreachBatch: what failed is handed on, here with a delay of one second.
    failed = (
        read(COLUMNS, group=group).where("queueOffset % 5 = 0").selectExpr("*", "1 AS delayLevel")
    )
    send_back(failed, broker, group, maxReconsumeTimes="1")
    loader.await_end(retry, 4)
    again = read(COLUMNS, subscribe=retry.topic)
    rows = {row.body.decode(): row for row in again.collect()}
    assert sorted(rows) == sorted(f"{topic}/{number}" for number in (0, 5, 10, 15))
    for row in rows.values():
        assert row.reconsumeTimes == 1
        assert row.properties["RETRY_TOPIC"] == topic
    # Their attempts are used up.
    send_back(again, broker, group, maxReconsumeTimes="1")
    loader.await_end(QueueId(dead, queue.broker, 0), 4)
    assert {row.body.decode() for row in read(COLUMNS, subscribe=dead).collect()} == set(rows)


def test_what_is_delivered_again_is_no_replay(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str, read: Read
) -> None:
    """A row that fails twice and dies: its copies keep its row ids, and each is a message."""
    (queue,) = loader.create(topic, 1)
    group = f"group-{topic}"
    retried, dead = f"%RETRY%{group}", f"%DLQ%{group}"
    where = {"nameServer": broker.name_server}
    spark.sql("SELECT 'x' body").write.format("rocketmq").options(**where, topic=topic).mode(
        "append"
    ).save()

    def newest(name: str, end: int) -> DataFrame:
        loader.await_end(QueueId(name, queue.broker, 0), end)
        return read(COLUMNS, subscribe=name, group=group).where(f"queueOffset = {end - 1}")

    for name, end, level in ((topic, 1, 1), (retried, 1, 1), (retried, 2, -1)):
        send_back(newest(name, end).withColumn("delayLevel", sf.lit(level)), broker, group)
    everything = read(COLUMNS).union(newest(dead, 1)).union(read(COLUMNS, subscribe=retried))
    assert everything.select(sf.col("properties")["PYSPARK_ROW"]).distinct().count() == 1
    assert everything.count() == drop_replays(everything).count() == 4
    assert main(["dlq", "replay", group, "--execute", "--name-server", broker.name_server]) == 0
    loader.await_end(queue, 2)
    assert drop_replays(read(COLUMNS)).count() == 2


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        ("'t' topic, 'b' brokerName", {}, "'physicalOffset' is missing.*physicalOffset BIGINT"),
        ("'t' topic, 'b' brokerName, '1' physicalOffset", {}, "must be bigint, not string"),
        ("'t' topic, 'b' brokerName, 1 physicalOffset", {"group": ""}, "'group'"),
        ("'t' topic, 'b' brokerName, 1 physicalOffset", {"topic": "x"}, "no meaning with sendBack"),
        ("'x' body", {"sendBack": "false", "topic": "x"}, "'group'.*without sendBack"),
    ],
)
def test_what_cannot_be_sent_back_is_refused(
    spark: SparkSession, broker: Broker, columns: str, options: dict[str, str], complaint: str
) -> None:
    given = {"nameServer": broker.name_server, "sendBack": "true", "group": "g", **options}
    given = {name: text for name, text in given.items() if text}
    writer = spark.sql(f"SELECT {columns}").write.format("rocketmq").options(**given)
    with pytest.raises(PySparkException, match=f"(?s){complaint}"):
        writer.mode("append").save()


def test_a_message_that_is_not_there_fails_the_write(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str
) -> None:
    (queue,) = loader.create(topic, 1)
    frame = spark.sql(f"SELECT '{topic}' topic, '{queue.broker}' brokerName, 1L physicalOffset")
    with pytest.raises(PySparkException, match=r"ROCKETMQ_SEND\.BACK_REFUSED.*physicalOffset=1 "):
        send_back(frame, broker, f"group-{topic}")


def test_a_row_without_its_offset_is_named(spark: SparkSession, broker: Broker, topic: str) -> None:
    frame = spark.sql(f"SELECT '{topic}' topic, 'b' brokerName, CAST(NULL AS LONG) physicalOffset")
    error = r"ROCKETMQ_SINK\.ROW\] partition \d+, row 0 \(.*has no physicalOffset"
    with pytest.raises(PySparkException, match=error):
        send_back(frame, broker, f"group-{topic}")
