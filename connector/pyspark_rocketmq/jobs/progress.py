"""What every job says while it runs, and how it ends when it is asked to."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from rocketmq_wire.plural import plural

__all__ = ["ask_at_sigterm", "follow", "plural", "say"]

_POLL_S = 1


def say(text: str) -> None:
    """One line of progress, on standard error."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def ask_at_sigterm() -> threading.Event:
    """Set when the process is asked to end: the main thread, inside a call to Spark, looks."""
    asked_to_end = threading.Event()

    def ask(_signal: int, _frame: FrameType | None) -> None:
        asked_to_end.set()

    signal.signal(signal.SIGTERM, ask)
    return asked_to_end


def follow(
    query: StreamingQuery,
    asked_to_end: threading.Event,
    what: str = "messages",
    on_batch: Callable[[StreamingQueryProgress], None] | None = None,
) -> int:
    """Say what every batch read until the query ends; returns how many in all.

    `on_batch` is called once for each of them: Spark itself remembers the last hundred only.
    Raises what the query failed with.
    """
    total = 0
    seen = -1
    while True:
        is_active = not query.awaitTermination(_POLL_S)
        if is_active and asked_to_end.is_set():
            say("asked to end")
            query.stop()
        for progress in query.recentProgress:
            if progress.batchId > seen and progress.numInputRows:
                seen = progress.batchId
                total += progress.numInputRows
                say(
                    f"batch {seen}: {progress.numInputRows:,} {what} in"
                    f" {progress.durationMs['triggerExecution']} ms, {total:,} in all"
                )
                if on_batch is not None:
                    on_batch(progress)
        if not is_active:
            return total
