"""The query that is killed: numbers 0, 1, 2, ... into a topic, in batches of one size, for ever."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pyspark.sql import SparkSession


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("options", "checkpoint", "begun"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rows", type=int, required=True)
    args = parser.parse_args()
    spark = SparkSession.builder.appName("accounting-writer").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # A batch that runs again has the same numbers.
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", args.rows)
        .option("numPartitions", 2)
        .load()
    )
    writer = (
        numbers.selectExpr("string(value) body")
        .writeStream.format("rocketmq")
        .options(**json.loads(args.options))
        .option("checkpointLocation", args.checkpoint)
        .trigger(processingTime="0 seconds")
    )
    Path(args.begun).touch()
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
