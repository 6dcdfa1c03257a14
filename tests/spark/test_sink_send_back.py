"""Rows that could not be worked on go back to their group: again later, in the end to the dead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rocketmq_broker_sim import Broker
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
