"""A Spark Connect client in a process of its own, as one process has one kind of session.

python -m support.connect_client REMOTE NAME_SERVER TOPIC FOLDER: reads, streams and writes as any
session does, and prints one line of JSON with what it saw.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_rocketmq import DefaultSource, LagListener, measure_lag, show_progress


def main(remote: str, name_server: str, topic: str, folder: Path) -> dict[str, object]:
    """Everything that works in a session of Spark's own, in one of Connect."""
    spark = SparkSession.builder.remote(remote).getOrCreate()
    server = {"nameServer": name_server}
    source = {**server, "subscribe": topic}
    seen: dict[str, object] = {}

    batch = spark.read.format("rocketmq").options(**source).load()
    rows = spark.createDataFrame([("written", "k")], "body STRING, keys STRING")
    rows.write.format("rocketmq").options(**server, topic=topic).mode("append").save()
    seen["bodies"] = sorted(row[0] for row in batch.selectExpr("CAST(body AS STRING)").collect())
    try:
        spark.read.format("rocketmq").options(**server, subscibe=topic).load().count()
    except PySparkException as error:
        seen["error"] = str(error)

    # The server has it by its own lookup so far; what a client registers goes before that.
    spark.dataSource.register(DefaultSource)
    listened: list[int] = []
    listener = LagListener(server, lambda _, lag: listened.append(lag.messages))
    spark.streams.addListener(listener)
    stream = spark.readStream.format("rocketmq").options(**source, startingOffsets="earliest")
    writer = stream.load().select("body", "keys").writeStream.format("rocketmq").options(**server)
    query = (
        writer.option("topic", f"{topic}-copies")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    show_progress(query)
    seen["behind"] = measure_lag(query.lastProgress, server).messages
    copies = spark.read.format("rocketmq").options(**server, subscribe=f"{topic}-copies").load()
    seen["copies"] = copies.count()
    spark.streams.removeListener(listener)
    seen["listened"] = listened
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))))
