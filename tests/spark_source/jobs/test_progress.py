"""What jobs say of a query while it runs, without Spark."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from pyspark_rocketmq.jobs.progress import follow
from spark_jobs.windowed_totals import LeftOut

REMEMBERED = 100


@dataclass
class FakeQuery:
    """A query that makes some batches between two looks, and remembers as many as Spark does."""

    batches: int
    per_look: int
    made: list[StreamingQueryProgress] = field(default_factory=list)

    def awaitTermination(self, _seconds: int) -> bool:  # noqa: N802 - as Spark names it.
        for _ in range(min(self.per_look, self.batches - len(self.made))):
            self.made.append(batch(len(self.made)))
        return len(self.made) == self.batches

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:  # noqa: N802
        return self.made[-REMEMBERED:]


def batch(
    number: int, *, missing: int = 1, late: int = 2, waiting: int = 3
) -> StreamingQueryProgress:
    progress: Any = SimpleNamespace(
        batchId=number,
        numInputRows=10,
        durationMs={"triggerExecution": 5},
        observedMetrics={"times": {"missing": missing}},
        stateOperators=[SimpleNamespace(numRowsDroppedByWatermark=late, numRowsTotal=waiting)],
    )
    return cast(StreamingQueryProgress, progress)


def test_what_batches_left_out_is_added_up_beyond_what_spark_remembers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    query = FakeQuery(batches=1_000, per_look=60)
    left_out = LeftOut()
    running = cast(StreamingQuery, query)
    assert follow(running, threading.Event(), on_batch=left_out.add) == 10_000
    assert (left_out.without_time, left_out.late) == (1_000, 2_000)
    assert str(left_out) == (
        "1,000 without a time were not counted, at least 2,000 came too late, "
        "totals of open windows are not written yet"
    )
    said = capsys.readouterr().err
    assert "batch 7: 1 without a time were not counted, at least 2 came too late" in said


def test_nothing_is_said_of_what_was_not_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    left_out = LeftOut()
    left_out.add(batch(3, missing=0, late=0, waiting=0))
    assert str(left_out) == ""
    assert capsys.readouterr().err == ""
