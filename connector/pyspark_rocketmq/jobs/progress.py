"""The progress lines of a job, and its end on SIGTERM."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from pyspark_rocketmq.jobs.arguments import ends, triggered
from pyspark_rocketmq.monitoring.progress_display import BatchSeen, Tally
from rocketmq_wire.plural import plural

__all__ = ["HOW_TO_END", "ask_at_sigterm", "follow", "plural", "run_query", "say"]

HOW_TO_END = "Ctrl-C or SIGTERM ends it"
_POLL_S = 1


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def ask_at_sigterm() -> threading.Event:
    """An event that SIGTERM sets; the main thread checks it between calls to Spark."""
    asked_to_end = threading.Event()

    def ask(_signal: int, _frame: FrameType | None) -> None:
        asked_to_end.set()

    signal.signal(signal.SIGTERM, ask)
    return asked_to_end


def run_query(
    writer: DataStreamWriter,
    name: str,
    args: argparse.Namespace,
    doing: str,
    on_batch: Callable[[StreamingQueryProgress], None] | None = None,
) -> int:
    """Start a job's query, say what it does and follow it to its end. As `follow`."""
    asked_to_end = ask_at_sigterm()
    named = writer.queryName(name).option("checkpointLocation", args.checkpoint)
    query = triggered(named, args).start()
    runs_on = "" if ends(args) else f". {HOW_TO_END}; the next run resumes from its checkpoint"
    say(doing + runs_on)
    return follow(query, asked_to_end, on_batch)


def follow(
    query: StreamingQuery,
    asked_to_end: threading.Event,
    on_batch: Callable[[StreamingQueryProgress], None] | None = None,
) -> int:
    """Print a line for every batch until the query ends. Returns the number of rows.

    `on_batch` is called once for each batch: Spark itself keeps only the last hundred. Raises the
    error of a failed query.
    """
    tally = Tally()
    while True:
        is_active = not query.awaitTermination(_POLL_S)
        if is_active and asked_to_end.is_set():
            say("asked to end")
            query.stop()
        for progress in query.recentProgress:
            if progress.numInputRows and tally.add(BatchSeen.from_progress(progress)):
                say(tally.text())
                if on_batch is not None:
                    on_batch(progress)
        if not is_active:
            return tally.rows
