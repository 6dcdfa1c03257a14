"""Reports how far consumer groups are behind: messages and seconds, by queue.

    ./run exec spark-submit spark_jobs/lag_report.py --name-server 127.0.0.1:9876 \\
        --topic orders --group orders-job --messages-max 100000 --output /data/lag

Prints one line for each group and appends one row for each queue to parquet files, where an output
is given. Ends with code 2 when a group is further behind than --messages-max or --seconds-max.
Any program's groups: the progress is what their brokers keep.
"""

from __future__ import annotations

import argparse
import time
from datetime import datetime, timezone

from pyspark.sql import SparkSession

from pyspark_rocketmq import Lag, measure_group_lag
from pyspark_rocketmq.jobs.arguments import (
    JobParser,
    add_cluster_arguments,
    count,
    positive,
    source_options,
)
from pyspark_rocketmq.jobs.progress import HOW_TO_END, ask_at_sigterm, plural, say
from pyspark_rocketmq.jobs.session import job_session, run_job

_ROW = """measured TIMESTAMP, group STRING, topic STRING, brokerName STRING, queueId INT,
    messages BIGINT, seconds DOUBLE"""
_TOO_FAR = 2
_Row = tuple[datetime, str, str, str, int, int, "float | None"]


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = JobParser("lag_report.py", description="How far consumer groups are behind.")
    add_cluster_arguments(parser)
    parser.add_argument("--topic", required=True, help="several are separated by commas")
    parser.add_argument(
        "--group", required=True, action="append", help="a consumer group; may be repeated"
    )
    parser.add_argument("--output", help="folder of parquet files to append to")
    parser.add_argument(
        "--every", type=positive, metavar="SECONDS", help="again and again (default: once)"
    )
    parser.add_argument("--times", type=count, metavar="N", help="with --every: so often, then end")
    parser.add_argument("--messages-max", type=int, metavar="N")
    parser.add_argument("--seconds-max", type=float, metavar="N")
    args = parser.parse_args(argv)
    if args.times is not None and args.every is None:
        parser.error("--times says how often, and needs --every, which says when again")
    return args


def rows_of(group: str, lag: Lag, now: datetime) -> list[_Row]:
    return [
        (now, group, queue.topic, queue.broker, queue.index, of_queue.messages, of_queue.seconds)
        for queue, of_queue in lag.queues.items()
    ]


def is_too_far(lag: Lag, args: argparse.Namespace) -> bool:
    """True beyond a limit; an age that nobody could tell is beyond any."""
    if args.messages_max is not None and lag.messages > args.messages_max:
        return True
    return args.seconds_max is not None and (lag.seconds is None or lag.seconds > args.seconds_max)


def report(args: argparse.Namespace, spark: SparkSession | None) -> bool:
    """Measure all groups once; True when one is too far behind."""
    rows: list[_Row] = []
    is_any_too_far = False
    now = datetime.now(timezone.utc)
    for group in args.group:
        lag = measure_group_lag({**source_options(args), "group": group})
        seconds = "unknown" if lag.seconds is None else f"{lag.seconds:,.1f}"
        is_behind = sum(1 for of_queue in lag.queues.values() if of_queue.messages)
        is_far = is_too_far(lag, args)
        say(
            f"{group}: {plural(lag.messages, 'message')}, {seconds} seconds behind, in "
            f"{is_behind} of {plural(len(lag.queues), 'queue')}" + (", too far" if is_far else "")
        )
        rows += rows_of(group, lag, now)
        is_any_too_far |= is_far
    if spark is not None and rows:
        spark.createDataFrame(rows, _ROW).coalesce(1).write.mode("append").parquet(args.output)
    return is_any_too_far


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    asked_to_end = ask_at_sigterm()
    if args.every is not None and args.times is None:
        say(f"reporting every {args.every:g} s. {HOW_TO_END}")
    spark = job_session("lag_report") if args.output else None
    done = 0
    is_far = False
    while not asked_to_end.is_set():
        began = time.monotonic()
        is_far = report(args, spark)
        done += 1
        if args.every is None or done == args.times:
            break
        asked_to_end.wait(max(0.0, args.every - (time.monotonic() - began)))
    return _TOO_FAR if is_far else 0


if __name__ == "__main__":
    run_job(main)
