"""Replays parquet files into a RocketMQ topic, at a rate.

    ./run exec spark-submit spark_jobs/parquet_to_topic.py --name-server 127.0.0.1:9876 \\
        --input /data/orders --topic orders-again --rate 5000 --checkpoint /data/replay-checkpoint

Takes what topic_to_parquet.py and stream_to_parquet.py write, and any files with a column `body`.
The checkpoint holds which files are sent: a job that is killed and started again sends none of
them twice but those of the batch that it was in, whose messages `drop_replays` recognises.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_rocketmq.job_arguments import (
    add_cluster_arguments,
    add_trigger_argument,
    positive,
    source_options,
    told_in_one_line,
    triggered,
)
from pyspark_rocketmq.job_progress import ask_at_sigterm, counted, follow, say
from pyspark_rocketmq.job_session import job_session
from pyspark_rocketmq.options import parse_options, require_sink
from pyspark_rocketmq.pacing import at_rate
from pyspark_rocketmq.resending import as_sent_anew, brokers_of


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="parquet_to_topic.py", description="Parquet files into a topic, at a rate."
    )
    add_cluster_arguments(parser)
    parser.add_argument("--topic", required=True, help="the topic to write to; it must be there")
    parser.add_argument("--input", required=True, help="folder of the parquet files")
    parser.add_argument("--checkpoint", required=True, help="folder of the query's checkpoint")
    parser.add_argument(
        "--rate", type=positive, metavar="N", help="messages a second at most (default: no limit)"
    )
    parser.add_argument(
        "--tasks",
        type=int,
        default=1,
        metavar="N",
        help="that many tasks share the rate; one keeps the order of a file (default: 1)",
    )
    parser.add_argument("--files-per-batch", type=int, default=8, metavar="N", help="(default: 8)")
    parser.add_argument(
        "--keep-queues",
        action="store_true",
        help="into the queues they came from: queueId, and brokerName where the topic has several",
    )
    add_trigger_argument(parser, "available-now")
    args = parser.parse_args(argv)
    if args.tasks < 1 or args.files_per_batch < 1:
        parser.error("--tasks and --files-per-batch take 1 or more")
    return args


def queue_names(columns: list[str], brokers: frozenset[str]) -> list[str]:
    """The columns that name a row's queue.

    One broker alone is not named: the files may come from a cluster whose brokers had other names.
    """
    has_broker = len(brokers) > 1 and "brokerName" in columns
    return ["queueId", "brokerName"] if has_broker else ["queueId"]


def messages_of(
    spark: SparkSession, args: argparse.Namespace, brokers: frozenset[str]
) -> DataFrame:
    """The rows to send, as the files come."""
    schema = spark.read.parquet(args.input).schema
    files = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", args.files_per_batch)
        .parquet(args.input)
    )
    names = queue_names(files.columns, brokers) if args.keep_queues else []
    rows = as_sent_anew(files, **{name: sf.col(name) for name in names})
    return rows if args.rate is None else at_rate(rows, args.rate, args.tasks)


def main() -> None:
    args = parse_arguments()
    with told_in_one_line():
        options = source_options(args)
        options["topic"] = options.pop("subscribe")
        parsed = require_sink(parse_options(options))
        brokers = brokers_of(parsed) if args.keep_queues else frozenset()
    spark = job_session("parquet_to_topic")
    asked_to_end = ask_at_sigterm()
    writer = (
        messages_of(spark, args, brokers)
        .writeStream.format("rocketmq")
        .options(**options)
        .queryName("parquet_to_topic")
        .option("checkpointLocation", args.checkpoint)
    )
    query = triggered(writer, args).start()
    rate = f" at {args.rate:,.0f} messages/s" if args.rate else ""
    say(f"sending {args.input} to {args.topic}{rate}")
    total = follow(query, asked_to_end)
    say(f"ended after {counted(total, 'message')}")
    spark.stop()


if __name__ == "__main__":
    main()
