"""Runs a streaming query into nothing and boils its progress reports down."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from bench.machine import Figures

R = TypeVar("R")

_STARTS_MAX = 5
# What Spark says of it.
TOO_SLOW = "Python worker failed to connect back"
STEPS = (
    *("triggerExecution", "latestOffset", "getBatch", "queryPlanning", "addBatch"),
    *("walCommit", "commitOffsets", "commitBatch"),
)


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch: its rows, and milliseconds of each step."""

    rows: int
    steps: dict[str, int]


def started_in_time(run: Callable[[], R]) -> R:
    """Run queries; again, a few times, when Spark was too slow to start one's Python process.

    It gives that process ten seconds, whatever the machine is busy with.
    """
    for _ in range(_STARTS_MAX - 1):
        try:
            return run()
        except StreamingQueryException as error:  # noqa: PERF203 - a run takes seconds.
            if TOO_SLOW not in str(error):
                raise
    return run()


def available_now(frame: DataFrame, checkpoint: str) -> list[Batch]:
    """Drain all that is there, as a query with the AvailableNow trigger; its batches with rows."""
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [batch for batch in batches_of(query.recentProgress) if batch.rows]


def batches_of(progress: Sequence[Any]) -> list[Batch]:
    return [Batch(report["numInputRows"], dict(report["durationMs"])) for report in progress]


def typical(batches: Sequence[Batch]) -> Figures:
    """Median milliseconds of each step over all batches but the first."""
    warm = batches[1:] or batches
    return {
        step: round(statistics.median(batch.steps.get(step, 0) for batch in warm))
        for step in STEPS
        if any(step in batch.steps for batch in warm)
    }
