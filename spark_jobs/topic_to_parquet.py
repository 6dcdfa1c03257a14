"""Copies what a RocketMQ topic holds between two offsets or times into parquet files.

    ./run exec spark-submit spark_jobs/topic_to_parquet.py --name-server 127.0.0.1:9876 \\
        --topic orders --start 2026-05-01T00:00:00Z --end latest --output /data/orders

Start and end are fixed to numbers before anything is read: what arrives meanwhile is for the next
run, and running again with the printed numbers gives the same rows. A queue that has nothing
between two times has nothing to copy, be it idle or empty. With --group the end is
committed for the group once the files are written; `--start group` resumes from there.
"""

from __future__ import annotations

import argparse
import time
from datetime import datetime, timezone

from pyspark_rocketmq import PinnedOffsets, pin_offsets
from pyspark_rocketmq.jobs.arguments import JobParser, add_source_arguments, source_options
from pyspark_rocketmq.jobs.progress import plural, say
from pyspark_rocketmq.jobs.session import job_session, refused_as, run_job


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = JobParser(
        "topic_to_parquet.py", description="A topic into parquet files, between two ends."
    )
    add_source_arguments(parser)
    parser.add_argument("--output", required=True, help="folder of the parquet files")
    parser.add_argument(
        "--start",
        type=offsets_or_time,
        default="earliest",
        help="earliest (default), group, offsets as JSON, or a time: 2026-05-01T00:00:00Z",
    )
    parser.add_argument(
        "--end",
        type=offsets_or_time,
        default="latest",
        help="latest (default), offsets as JSON, or a time",
    )
    parser.add_argument(
        "--mode",
        choices=("error", "append", "overwrite"),
        default="error",
        help="what to do when the output is there already (default: error)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be read")
    args = parser.parse_args(argv)
    if isinstance(args.start, int) and isinstance(args.end, int) and args.end < args.start:
        parser.error("--end is before --start, so nothing is between them")
    return args


def offsets_or_time(text: str) -> str | int:
    """Offsets as a word or JSON, or a time as milliseconds since 1970, for `type=`."""
    if text in ("earliest", "latest", "group") or text.startswith("{"):
        return text
    try:
        # Python 3.10 does not read the Z of other languages.
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"neither offsets nor a time: {text!r}, say 2026-05-01T00:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1_000)


def options_of(args: argparse.Namespace) -> dict[str, str]:
    """The source's options, as the command line gives them."""
    ends = end_option("starting", args.start) | end_option("ending", args.end)
    # A queue that has nothing so late has nothing to copy, and that is no mistake.
    strategy = "latest" if isinstance(args.start, int) else None
    return source_options(args, **ends, startingOffsetsByTimestampStrategy=strategy)


def end_option(which: str, end: str | int) -> dict[str, str]:
    """`startingOffsets` for a word or JSON, `startingTimestamp` for a time; or `ending...`."""
    return {f"{which}{'Timestamp' if isinstance(end, int) else 'Offsets'}": str(end)}


def describe(pinned: PinnedOffsets) -> None:
    messages, queues = plural(pinned.messages, "message"), plural(pinned.queues, "queue")
    say(f"{messages} in {queues}, {plural(pinned.tasks, 'task')}")
    say(f"start {pinned.starting_offsets}")
    say(f"end   {pinned.ending_offsets}")


def main(argv: list[str] | None = None) -> None:
    args = parse_arguments(argv)
    pinned = pin_offsets(options_of(args))
    describe(pinned)
    if args.dry_run:
        return
    if args.group:
        pinned.check_group()
    spark = job_session("topic_to_parquet")
    began = time.monotonic()
    messages = spark.read.format("rocketmq").options(**pinned.options).load()
    there = f"{args.output} is there already: say --mode append or overwrite, or another --output"
    with refused_as("PATH_ALREADY_EXISTS", there):
        messages.write.mode(args.mode).parquet(args.output)
    seconds = time.monotonic() - began
    say(f"wrote {args.output} in {seconds:.1f} s, {pinned.messages / seconds:,.0f} messages/s")
    if args.group:
        pinned.commit()
        say(f"committed the end as the progress of group {args.group}")


if __name__ == "__main__":
    run_job(main)
