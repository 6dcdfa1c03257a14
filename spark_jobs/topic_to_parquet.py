"""Copies what a RocketMQ topic holds between two offsets or times into parquet files.

    ./run exec spark-submit spark_jobs/topic_to_parquet.py --name-server 127.0.0.1:9876 \\
        --topic orders --start 2026-05-01T00:00:00Z --end latest --output /data/orders

Start and end are fixed to numbers before anything is read: what arrives meanwhile is for the next
run, and running again with the printed numbers gives the same rows. With --group the end is
committed as the group's progress once the files are written; `--start group` goes on from there.
"""

from __future__ import annotations

import argparse
import time
from datetime import datetime, timezone

from pyspark_rocketmq import PinnedOffsets, pin_offsets
from pyspark_rocketmq.job_arguments import add_source_arguments, source_options, told_in_one_line
from pyspark_rocketmq.job_progress import counted, say
from pyspark_rocketmq.job_session import job_session


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="topic_to_parquet.py", description="A topic into parquet files, between two ends."
    )
    add_source_arguments(parser)
    parser.add_argument("--output", required=True, help="folder of the parquet files")
    parser.add_argument(
        "--start",
        default="earliest",
        help="earliest (default), group, offsets as JSON, or a time: 2026-05-01T00:00:00Z",
    )
    parser.add_argument(
        "--end", default="latest", help="latest (default), offsets as JSON, or a time"
    )
    parser.add_argument(
        "--mode",
        choices=("error", "append", "overwrite"),
        default="error",
        help="what to do when the output is there already (default: error)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be read")
    return parser.parse_args(argv)


def options_of(args: argparse.Namespace) -> dict[str, str]:
    """The source's options, as the command line gives them."""
    ends = end_option("starting", args.start) | end_option("ending", args.end)
    return source_options(args, **ends)


def end_option(which: str, text: str) -> dict[str, str]:
    """`startingOffsets` for a word or JSON, `startingTimestamp` for a time; or `ending...`.

    Raises SystemExit for a text that is neither.
    """
    if text in ("earliest", "latest", "group") or text.startswith("{"):
        return {f"{which}Offsets": text}
    try:
        # Python 3.10 does not read the Z of other languages.
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise SystemExit(
            f"neither offsets nor a time: {text!r}, say 2026-05-01T00:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return {f"{which}Timestamp": str(round(moment.timestamp() * 1_000))}


def describe(pinned: PinnedOffsets) -> None:
    messages, queues = counted(pinned.messages, "message"), counted(pinned.queues, "queue")
    say(f"{messages} in {queues}, {counted(pinned.tasks, 'task')}")
    say(f"start {pinned.starting_offsets}")
    say(f"end   {pinned.ending_offsets}")


def main() -> None:
    args = parse_arguments()
    with told_in_one_line():
        pinned = pin_offsets(options_of(args))
    describe(pinned)
    if args.dry_run:
        return
    if args.group:
        with told_in_one_line():
            pinned.check_group()
    spark = job_session("topic_to_parquet")
    began = time.monotonic()
    messages = spark.read.format("rocketmq").options(**pinned.options).load()
    messages.write.mode(args.mode).parquet(args.output)
    seconds = time.monotonic() - began
    say(f"wrote {args.output} in {seconds:.1f} s, {pinned.messages / seconds:,.0f} messages/s")
    if args.group:
        with told_in_one_line():
            pinned.commit()
        say(f"committed the end as the progress of group {args.group}")
    spark.stop()


if __name__ == "__main__":
    main()
