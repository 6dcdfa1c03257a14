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

from pyspark_rocketmq.jobs.arguments import (
    JobParser,
    add_source_arguments,
    add_stream_arguments,
    stream_options,
)
from pyspark_rocketmq.jobs.progress import plural, run_query, say
from pyspark_rocketmq.jobs.session import read_topics, run_job


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = JobParser(
        "stream_to_parquet.py", description="A topic into parquet files, exactly once."
    )
    add_source_arguments(parser)
    parser.add_argument("--output", required=True, help="folder of the parquet files")
    add_stream_arguments(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_arguments(argv)
    messages = read_topics("stream_to_parquet", stream_options(args), args.checkpoint, args.output)
    writer = messages.writeStream.format("parquet").option("path", args.output)
    doing = f"reading {args.topic} into {args.output}"
    total = run_query(writer, "stream_to_parquet", args, doing)
    say(f"ended after {plural(total, 'message')}")


if __name__ == "__main__":
    run_job(main)
