"""Adds up a RocketMQ topic in windows of time, late messages included up to a watermark.

    ./run exec spark-submit spark_jobs/windowed_totals.py --name-server 127.0.0.1:9876 \\
        --topic orders --window "1 minute" --watermark "30 seconds" --by '$.customer' \\
        --sum '$.amount' --output /data/totals --checkpoint /data/totals-checkpoint

For each window and key: how many messages, how many bytes, and the sum of a field. A window is
written once, when the watermark has passed its end, and not before; what comes later than that is
left out, and so is a message without a time: both are said with every batch and at the end. The
checkpoint makes every other message count exactly once, also over restarts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.listener import StreamingQueryProgress

from pyspark_rocketmq.jobs.arguments import (
    JobParser,
    add_source_arguments,
    add_stream_arguments,
    interval,
    microseconds_of,
    period,
    stream_options,
)
from pyspark_rocketmq.jobs.progress import plural, run_query, say
from pyspark_rocketmq.jobs.session import read_topics, run_job

_TIMES = {"stored": "storeTimestamp", "born": "bornTimestamp"}
_COLUMNS = ("topic", "tags", "keys")
_OBSERVED = "times"


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = JobParser("windowed_totals.py", description="Totals of a topic in windows of time.")
    add_source_arguments(parser)
    add_stream_arguments(parser)
    parser.add_argument("--output", required=True, help="folder of the parquet files")
    parser.add_argument(
        "--window", type=period, default="1 minute", help="its length (default: 1 minute)"
    )
    parser.add_argument(
        "--slide", type=period, help="a window begins so often (default: one after the other)"
    )
    parser.add_argument(
        "--watermark",
        type=interval,
        default="1 minute",
        help="how late a message may be (default: 1 minute)",
    )
    parser.add_argument(
        "--time",
        type=one_of(*_TIMES),
        default="stored",
        metavar="stored|born|$.FIELD",
        help="when a message happened: a time of RocketMQ's (default: stored), or one in its body; "
        "messages without one are in no window, and counted",
    )
    parser.add_argument(
        "--by",
        type=one_of(*_COLUMNS),
        default="topic",
        metavar="topic|tags|keys|$.FIELD",
        help="a total for each of what (default: topic); $.FIELD is of a JSON body",
    )
    parser.add_argument(
        "--sum", type=one_of(), metavar="$.FIELD", help="a number in the JSON body to add up"
    )
    args = parser.parse_args(argv)
    if args.slide and microseconds_of(args.slide) > microseconds_of(args.window):
        parser.error(
            f"--slide {args.slide!r} is longer than --window {args.window!r}: messages in between "
            "would be in no window"
        )
    return args


def one_of(*words: str) -> Callable[[str], str]:
    """One of these words, or a field of the JSON body, for `type=`."""

    def checked(text: str) -> str:
        if text in words or text.startswith("$."):
            return text
        known = "".join(f"{word}, " for word in words) + ("or " if words else "")
        raise argparse.ArgumentTypeError(f"must be {known}a field as '$.customer', got {text!r}")

    return checked


def field(text: str) -> Column:
    """A field of the JSON body."""
    return sf.get_json_object(sf.col("body").cast("string"), text)


def totals(messages: DataFrame, args: argparse.Namespace) -> DataFrame:
    """One row a window and key."""
    time = _TIMES.get(args.time)
    happened = sf.col(time) if time else field(args.time).try_cast("timestamp")
    key = sf.col(args.by) if args.by in _COLUMNS else field(args.by)
    value = field(args.sum).try_cast("double") if args.sum else sf.lit(None).cast("double")
    rows = messages.select(
        happened.alias("time"),
        key.alias("key"),
        value.alias("value"),
        sf.octet_length("body").cast("long").alias("size"),
    )
    # Spark leaves out what is in no window without a word.
    rows = rows.observe(_OBSERVED, sf.count_if(sf.col("time").isNull()).alias("missing"))
    window = sf.window("time", args.window, args.slide or args.window)
    return (
        rows.withWatermark("time", args.watermark)
        .groupBy(window.alias("window"), "key")
        .agg(
            sf.count("*").alias("messages"),
            sf.sum("size").alias("bytes"),
            sf.sum("value").alias("total"),
        )
        .select("window.start", "window.end", "key", "messages", "bytes", "total")
    )


@dataclass
class LeftOut:
    """Messages that are in no total."""

    without_time: int = 0
    late: int = 0
    """At least: Spark counts what comes too late after it has added up some of it."""
    has_open_windows: bool = False
    """More messages may come for them: their totals are written later."""

    def add(self, progress: StreamingQueryProgress) -> None:
        """What a batch left out."""
        missing = progress.observedMetrics[_OBSERVED]["missing"]
        late = sum(state.numRowsDroppedByWatermark for state in progress.stateOperators)
        self.without_time += missing
        self.late += late
        self.has_open_windows = any(state.numRowsTotal for state in progress.stateOperators)
        if missing or late:
            say(f"batch {progress.batchId}: {LeftOut(missing, late)}")

    def __str__(self) -> str:
        found = []
        if self.without_time:
            found.append(f"{self.without_time:,} without a time were not counted")
        if self.late:
            found.append(f"at least {self.late:,} came too late")
        if self.has_open_windows:
            found.append("totals of open windows are not written yet")
        return ", ".join(found)


def main(argv: list[str] | None = None) -> None:
    args = parse_arguments(argv)
    messages = read_topics("windowed_totals", stream_options(args), args.checkpoint, args.output)
    writer = totals(messages, args).writeStream.format("parquet").outputMode("append")
    doing = f"adding up {args.topic} in windows of {args.window} into {args.output}"
    left_out = LeftOut()
    total = run_query(
        writer.option("path", args.output), "windowed_totals", args, doing, left_out.add
    )
    say(", ".join(filter(None, (f"ended after {plural(total, 'message')}", str(left_out)))))


if __name__ == "__main__":
    run_job(main)
