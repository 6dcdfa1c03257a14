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

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from pyspark_rocketmq import OffsetCommitListener
from pyspark_rocketmq.jobs.arguments import (
    JobParser,
    add_source_arguments,
    add_stream_arguments,
    stream_options,
    triggered,
)
from pyspark_rocketmq.jobs.preflight import require_topics_to_read
from pyspark_rocketmq.jobs.progress import ask_at_sigterm, follow, plural, say
from pyspark_rocketmq.jobs.session import job_session, run_job
from pyspark_rocketmq.options.parse import read_options


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = JobParser(
        prog="stream_to_parquet.py", description="A topic into parquet files, exactly once."
    )
    add_source_arguments(parser)
    parser.add_argument("--output", required=True, help="folder of the parquet files")
    add_stream_arguments(parser)
    return parser.parse_args(argv)


def options_of(args: argparse.Namespace) -> dict[str, str]:
    """The source's options, as the command line gives them."""
    return stream_options(args)


def follows_group(options: dict[str, str]) -> bool:
    """True when a group's offsets are to follow, whichever of its names the option goes by."""
    return read_options(options).consumer.group is not None


def start(messages: DataFrame, args: argparse.Namespace) -> StreamingQuery:
    writer = (
        messages.writeStream.format("parquet")
        .queryName("stream_to_parquet")
        .option("checkpointLocation", args.checkpoint)
        .option("path", args.output)
    )
    return triggered(writer, args).start()


def main(argv: list[str] | None = None) -> None:
    args = parse_arguments(argv)
    options = options_of(args)
    has_group = follows_group(options)
    spark = job_session("stream_to_parquet")
    require_topics_to_read(spark, options, args.checkpoint)
    messages = spark.readStream.format("rocketmq").options(**options).load()
    if has_group:
        # The source commits when it is asked for the next batch; this also after the last one.
        spark.streams.addListener(OffsetCommitListener(options))
    asked_to_end = ask_at_sigterm()
    query = start(messages, args)
    say(f"reading {args.topic} into {args.output}")
    total = follow(query, asked_to_end)
    say(f"ended after {plural(total, 'message')}")


if __name__ == "__main__":
    run_job(main)
