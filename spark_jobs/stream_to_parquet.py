"""Streams a RocketMQ topic into parquet files, every message exactly once.

    ./run exec spark-submit spark_jobs/stream_to_parquet.py --name-server 127.0.0.1:9876 \\
        --topic orders --output /data/orders --checkpoint /data/orders-checkpoint

Spark's file sink lists the files of every finished batch, and the checkpoint the offsets of every
batch: a job that is killed and started again neither loses a message nor writes one twice. Readers
must read the output folder through Spark, which honours that list. The group's offsets at the
broker follow, for people and tools; the checkpoint is the truth.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from types import FrameType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_rocketmq import GroupProgressListener
from pyspark_rocketmq.job_arguments import add_source_arguments, source_options, told_in_one_line
from pyspark_rocketmq.options import parse_options

_POLL_S = 1


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="stream_to_parquet.py", description="A topic into parquet files, exactly once."
    )
    add_source_arguments(parser)
    parser.add_argument("--output", required=True, help="folder of the parquet files")
    parser.add_argument("--checkpoint", required=True, help="folder of the query's checkpoint")
    parser.add_argument(
        "--starting-offsets",
        default="earliest",
        help="where a query without a checkpoint begins: earliest (default), latest, group, JSON",
    )
    parser.add_argument(
        "--trigger",
        default="10 seconds",
        metavar="INTERVAL|available-now",
        help="a batch every interval (default: 10 seconds), or all that is there and then end",
    )
    parser.add_argument("--max-offsets-per-trigger", type=int, metavar="N")
    parser.add_argument("--max-partitions", type=int, metavar="N", help="tasks of a batch at most")
    return parser.parse_args(argv)


def options_of(args: argparse.Namespace) -> dict[str, str]:
    """The source's options, as the command line gives them."""
    return source_options(
        args,
        startingOffsets=args.starting_offsets,
        maxOffsetsPerTrigger=args.max_offsets_per_trigger,
        maxPartitions=args.max_partitions,
    )


def follows_group(options: dict[str, str]) -> bool:
    """True when a group's offsets are to follow, whichever of its names the option goes by."""
    return parse_options(options).group is not None


def start(messages: DataFrame, args: argparse.Namespace) -> StreamingQuery:
    writer = (
        messages.writeStream.format("parquet")
        .queryName("stream_to_parquet")
        .option("checkpointLocation", args.checkpoint)
        .option("path", args.output)
    )
    if args.trigger == "available-now":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=args.trigger).start()


def follow(query: StreamingQuery, asked_to_end: threading.Event) -> int:
    """Say what every batch wrote until the query ends; returns the number of messages."""
    total = 0
    seen = -1
    while True:
        is_active = not query.awaitTermination(_POLL_S)
        if is_active and asked_to_end.is_set():
            say("asked to end")
            query.stop()
        for progress in query.recentProgress:
            if progress.batchId > seen and progress.numInputRows:
                seen = progress.batchId
                total += progress.numInputRows
                say(
                    f"batch {seen}: {progress.numInputRows:,} messages in"
                    f" {progress.durationMs['triggerExecution']} ms, {total:,} in all"
                )
        if not is_active:
            return total


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> None:
    args = parse_arguments()
    options = options_of(args)
    with told_in_one_line():
        has_group = follows_group(options)
    spark = SparkSession.builder.appName("stream_to_parquet").getOrCreate()
    messages = spark.readStream.format("rocketmq").options(**options).load()
    if has_group:
        # The source commits when it is asked for the next batch; this also after the last one.
        spark.streams.addListener(GroupProgressListener(options))
    asked_to_end = threading.Event()

    def ask(_signal: int, _frame: FrameType | None) -> None:
        # The main thread is inside a call to Spark: it stops the query between two of them.
        asked_to_end.set()

    signal.signal(signal.SIGTERM, ask)
    query = start(messages, args)
    say(f"reading {args.topic} into {args.output}")
    total = follow(query, asked_to_end)
    say(f"ended after {total:,} messages")
    spark.stop()


if __name__ == "__main__":
    main()
