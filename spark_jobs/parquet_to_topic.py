"""Replays parquet files into a RocketMQ topic, at a rate.

    ./run exec spark-submit spark_jobs/parquet_to_topic.py --name-server 127.0.0.1:9876 \\
        --input /data/orders --topic orders-again --rate 5000 --checkpoint /data/replay-checkpoint

Takes what topic_to_parquet.py and stream_to_parquet.py write, and any files with a column `body`.
The checkpoint holds which files are sent: a job that is killed and started again sends none of
them twice but those of the batch that it was in, whose messages `drop_replays` recognises. Topic,
columns and, with --keep-queues, the queues of the files that are there are looked at before.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_rocketmq.errors import JobError
from pyspark_rocketmq.jobs.arguments import (
    JobParser,
    add_cluster_arguments,
    add_trigger_argument,
    count,
    positive,
    source_options,
)
from pyspark_rocketmq.jobs.progress import plural, run_query, say
from pyspark_rocketmq.jobs.resend import as_new_messages, at_rate
from pyspark_rocketmq.jobs.session import (
    files_in,
    job_session,
    queues_to_write,
    refused_as,
    require_rows_fit,
    run_job,
)
from pyspark_rocketmq.sink.encoding.plan import sink_columns


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = JobParser("parquet_to_topic.py", description="Parquet files into a topic, at a rate.")
    add_cluster_arguments(parser)
    parser.add_argument("--topic", required=True, help="the topic to write to; it must be there")
    parser.add_argument("--input", required=True, help="folder of the parquet files")
    parser.add_argument("--checkpoint", required=True, help="folder of the query's checkpoint")
    parser.add_argument(
        "--rate", type=positive, metavar="N", help="messages a second at most (default: no limit)"
    )
    parser.add_argument(
        "--tasks",
        type=count,
        default=1,
        metavar="N",
        help="that many tasks share the rate; one keeps the order of a file (default: 1)",
    )
    parser.add_argument(
        "--files-per-batch", type=count, default=8, metavar="N", help="(default: 8)"
    )
    parser.add_argument(
        "--keep-queues",
        action="store_true",
        help="into the queues they came from: queueId, and brokerName where the topic has several",
    )
    add_trigger_argument(parser, "available-now")
    return parser.parse_args(argv)


def queue_names(columns: list[str], brokers: frozenset[str]) -> list[str]:
    """The columns that name a row's queue. Raises JobError where they are not there.

    One broker alone is not named: the files may come from a cluster whose brokers had other names.
    """
    names = ["queueId", "brokerName"] if len(brokers) > 1 else ["queueId"]
    missing = [name for name in names if name not in columns]
    if missing:
        raise JobError(
            f"the files have no column {missing[0]}, which names a row's queue in a topic on "
            f"{', '.join(sorted(brokers))}: leave out --keep-queues"
        )
    return names


def files_of(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """The files that are there, as a table. Raises JobError when they are no messages."""
    if files_in(spark, args.input) is None:
        raise JobError(f"there is no {args.input}: give --input a folder of parquet files")
    nothing = f"no parquet files in {args.input}: give --input a folder that has some"
    with refused_as("UNABLE_TO_INFER_SCHEMA", nothing):
        files = spark.read.parquet(args.input)
    if "body" not in files.columns:
        raise JobError(
            f"the files in {args.input} have no column body, which is what is sent, but only "
            f"{', '.join(files.columns)}: write them with the body under that name"
        )
    return files


def messages_of(
    spark: SparkSession, args: argparse.Namespace, files: DataFrame, names: list[str]
) -> DataFrame:
    """The rows to send, as the files come. Raises SinkSchemaError before anything is sent."""
    stream = (
        spark.readStream.schema(files.schema)
        .option("maxFilesPerTrigger", args.files_per_batch)
        .parquet(args.input)
    )
    rows = as_new_messages(stream, **{name: sf.col(name) for name in names})
    sink_columns(rows.schema, has_topic_option=True)
    return rows if args.rate is None else at_rate(rows, args.rate, args.tasks)


def main(argv: list[str] | None = None) -> None:
    args = parse_arguments(argv)
    options = source_options(args)
    options["topic"] = options.pop("subscribe")
    (queues,) = queues_to_write(options).values()
    spark = job_session("parquet_to_topic")
    files = files_of(spark, args)
    names: list[str] = []
    if args.keep_queues:
        names = queue_names(files.columns, frozenset(queue.broker for queue in queues))
        require_rows_fit(files, names, queues)
    writer = (
        messages_of(spark, args, files, names).writeStream.format("rocketmq").options(**options)
    )
    rate = f" at {args.rate:,.0f} messages/s" if args.rate else ""
    doing = f"sending {args.input} to {args.topic}{rate}"
    total = run_query(writer, "parquet_to_topic", args, doing)
    say(f"ended after {plural(total, 'message')}")


if __name__ == "__main__":
    run_job(main)
