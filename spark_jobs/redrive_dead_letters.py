"""Sends a consumer group's dead letters to their topics again.

    ./run exec spark-submit spark_jobs/redrive_dead_letters.py --name-server 127.0.0.1:9876 \\
        --group orders-job --dry-run

Each goes to the topic that it was sent to first, or all to one (--to), with its body, keys, tags,
message group and own properties, and without the history of its attempts: it has all of them again.
Bodies of 4 KiB and more are compressed on their way, for those that only fit in so.
The job commits the offsets of sent dead letters for a group of its own (--progress, by default
<group>-redrive), so that the next run begins behind them. If a run is killed, the next one sends
again what was not committed.

A run with --tags skips the other dead letters, so it commits for a group of these tags (the job
prints its name). A run without --tags, or with other tags, ignores that group and sends its dead
letters, too.
"""

from __future__ import annotations

import argparse
import hashlib
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from pyspark_rocketmq import pin_offsets
from pyspark_rocketmq.errors import JobError
from pyspark_rocketmq.jobs.arguments import (
    JobParser,
    add_cluster_arguments,
    connection_of,
    positive,
    source_options,
    take_sending,
)
from pyspark_rocketmq.jobs.progress import plural, say
from pyspark_rocketmq.jobs.resend import as_new_messages, at_rate
from pyspark_rocketmq.jobs.session import job_session, queues_to_write, run_job
from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.options.values import ReadOptions


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = JobParser("redrive_dead_letters.py", description="A group's dead letters, sent again.")
    add_cluster_arguments(parser)
    parser.add_argument("--group", required=True, help="the group whose dead letters they are")
    parser.add_argument("--to", metavar="TOPIC", help="send all there (default: where they began)")
    parser.add_argument(
        "--progress",
        metavar="GROUP",
        help="whose progress it is (default: <group>-redrive); with --tags a name made from it",
    )
    parser.add_argument(
        "--start",
        choices=("progress", "earliest"),
        default="progress",
        help="behind what was sent already (default), or from the first one kept",
    )
    parser.add_argument("--tags", help="only those with these tags, such as 'A || B'")
    parser.add_argument("--rate", type=positive, metavar="N", help="messages a second at most")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be sent")
    args = parser.parse_args(argv)
    # Large bodies go as RocketMQ's own producers send them: some were never taken otherwise.
    args.sending = take_sending(args, compression="zlib")
    return args


def options_of(args: argparse.Namespace) -> dict[str, str]:
    """The source's options: dead letters up to now. Raises OptionError."""
    progress = args.progress or f"{args.group}-redrive"
    start = "group:earliest" if args.start == "progress" else "earliest"
    options = source_options(
        args,
        deadLettersOf=args.group,
        group=progress,
        startingOffsets=start,
        tags=args.tags,
        includeProperties="true",
    )
    if options.get("group") == progress:
        options["group"] += suffix_of(read_options(options))
    return options


def suffix_of(options: ReadOptions) -> str:
    """The suffix of the name of a group for some tags only.

    A hash, as tags may contain characters that a group's name must not.
    """
    chosen = options.subscription
    if chosen.selects_all:
        return ""
    words = {word.strip() for word in chosen.expression.split("||")} - {""}
    return f"-{hashlib.sha256('||'.join(sorted(words)).encode()).hexdigest()[:8]}"


def dead_letters(messages: DataFrame, to: str | None) -> DataFrame:
    """What is to be sent, each with its topic."""
    began = sf.coalesce(
        sf.col("properties")["RETRY_TOPIC"], sf.col("properties")["DLQ_ORIGIN_TOPIC"]
    )
    return as_new_messages(messages, topic=sf.lit(to) if to else began)


def tell_topics(rows: DataFrame, *, is_dry: bool) -> list[str]:
    """Print the number of dead letters per target topic. Raises JobError for those without one."""
    topics = []
    for row in rows.groupBy("topic").count().orderBy("topic").collect():
        if row["topic"] is None:
            raise JobError(f"{row['count']:,} of them do not say where they began: say --to TOPIC")
        say(f"{row['count']:,}{' would be sent' if is_dry else ''} to {row['topic']}")
        topics.append(row["topic"])
    return topics


def main(argv: list[str] | None = None) -> None:
    args = parse_arguments(argv)
    options = options_of(args)
    pinned = pin_offsets(options)
    sink = connection_of(options) | args.sending
    where = read_options(options)
    say(f"{plural(pinned.messages, 'dead letter')} of {args.group} to look at")
    if args.to:
        queues_to_write(sink, [args.to])
    if not pinned.messages:
        return
    spark = job_session("redrive_dead_letters")
    rows = dead_letters(spark.read.format("rocketmq").options(**pinned.options).load(), args.to)
    queues_to_write(sink, tell_topics(rows, is_dry=args.dry_run))
    if not args.dry_run:
        began = time.monotonic()
        paced = rows if args.rate is None else at_rate(rows, args.rate)
        paced.write.format("rocketmq").options(**sink).mode("append").save()
        say(f"sent in {time.monotonic() - began:.1f} s")
        pinned.commit(where.consumer.group)
        say(f"committed as the progress of group {where.consumer.group}")


if __name__ == "__main__":
    run_job(main)
