"""A member of a group as a process that tests kill: KIND NAME_SERVER TOPIC GROUP FILE.

It writes each message as a line `queue offset` to the file before the message counts as consumed.
The kinds are `push` and `poll`; `query` is a Spark query that joins the group, and takes a folder
for its checkpoint and its batches, one file each: a batch that runs again replaces its file.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from rocketmq_client.consumer.common.listener import ConsumeContext, ConsumeStatus
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings
from rocketmq_client.consumer.lite_pull import LitePullConsumer
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Subscription


def write(file: TextIO, messages: Iterable[ReceivedMessage]) -> None:
    file.write("".join(f"{m.queue_index} {m.queue_offset}\n" for m in messages))
    file.flush()


def push(connection: ConnectionSettings, settings: ConsumerSettings, file: TextIO) -> None:
    lock = threading.Lock()

    def listen(messages: list[ReceivedMessage], _: ConsumeContext) -> ConsumeStatus:
        with lock:
            write(file, messages)
        return ConsumeStatus.SUCCESS

    with PushConsumer(connection, settings, listen):
        threading.Event().wait()


def poll(connection: ConnectionSettings, settings: ConsumerSettings, file: TextIO) -> None:
    with LitePullConsumer(connection, settings) as consumer:
        while True:
            write(file, consumer.poll(1_000))


def query(name_server: str, topic: str, group: str, folder: Path) -> None:
    # Spark takes a second to import, which the other kinds do without.
    from pyspark.sql import DataFrame, SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    (folder / "batches").mkdir(exist_ok=True)

    def keep(frame: DataFrame, batch: int) -> None:
        rows = frame.select("queueId", "queueOffset").collect()
        fresh = folder / "batches" / f"{batch}.tmp"
        fresh.write_text("".join(f"{index} {offset}\n" for index, offset in rows))
        fresh.rename(folder / "batches" / f"{batch}.txt")

    options = {"nameServer": name_server, "subscribe": topic, "group": group, "joinGroup": "true"}
    frame = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest")
    writer = frame.schema("queueId INT, queueOffset LONG").load().writeStream.foreachBatch(keep)
    writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


def main(kind: str, name_server: str, topic: str, group: str, path: str) -> None:
    if kind == "query":
        query(name_server, topic, group, Path(path))
        return
    settings = ConsumerSettings(group, {topic: Subscription()}, consume_from=ConsumeFrom.FIRST)
    connection = ConnectionSettings(name_servers=(name_server,))
    with Path(path).open("a", encoding="ascii") as file:
        (push if kind == "push" else poll)(connection, settings, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
