"""Runs of the measurements that need Spark -> their figures."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from bench.machine import Run
from bench.measures import available_now, micro_batch
from bench.registry import FULL
from bench.streaming import Batch, started_in_time


def drain(seconds: float, *rows: int) -> Run:
    return Run(seconds, 1.5, 0.1, [Batch(count, {"addBatch": 90}) for count in rows])


def test_available_now_is_set_beside_the_ceiling_with_as_many_partitions() -> None:
    measured = {
        ("ceiling", 8): [drain(2.0, 60, 40)] * 3,
        ("endpoints", 8): [drain(3.0, 60, 40), drain(2.5, 60, 40), drain(9.0, 60, 40)],
        ("nameServer", 8): [drain(4.0, 60, 40)] * 3,
        ("ceiling", 2): [drain(1.0, 60, 40)] * 3,
        ("endpoints", 2): [drain(2.0, 60, 40)] * 3,
        ("nameServer", 2): [drain(2.0, 60, 40)] * 3,
    }
    lines = list(available_now.figures_of(measured, 1024, 100))
    assert [line.get("ratio") for line in lines] == [None, 0.667, 0.5, None, 0.5, 0.5, None, None]
    assert {line["body"] for line in lines} == {1024}
    assert lines[1]["batches"] == 2
    assert lines[1]["median_s"] == 3.0
    # The ceiling halves its seconds with two partitions; this one saves a third.
    packed = lines[-1]
    assert (packed["transport"], packed["seconds_ratio"]) == ("endpoints", 0.667)
    assert (packed["ceiling_seconds_ratio"], packed["gain_ratio"]) == (0.5, 0.75)


def trickle(*milliseconds: int, others: float = 0.1) -> Run:
    steps = [{"triggerExecution": ms, "addBatch": ms - 20} for ms in milliseconds]
    return Run(5.0, 1.0, others, [Batch(80, step) for step in steps])


def test_a_micro_batch_is_the_median_of_the_medians_of_its_runs() -> None:
    measured = {
        ("empty", 8): [trickle(100, 120, 200), trickle(90, 100, 110), trickle(400)],
        ("endpoints", 8): [trickle(150, 156, 400), trickle(150), trickle(900, others=1.5)],
    }
    empty, ours = micro_batch.figures_of(measured)
    assert (empty["what"], empty["ms"], empty["runs_ms"]) == ("empty source", 120, [120, 100, 400])
    assert "ratio" not in empty
    assert (ours["ms"], ours["ratio"], ours["batches"]) == (156, 1.3, 5)
    assert (ours["quiet"], empty["quiet"]) == (False, True)


def test_large_bodies_come_in_several_batches_too() -> None:
    for body_size in (100, 1024):
        assert FULL.messages(body_size) >= 5 * FULL.batch(body_size)


def test_a_query_is_started_again_only_if_spark_was_too_slow() -> None:
    failures = ["Python worker failed to connect back."] * 2

    def run() -> str:
        if failures:
            raise StreamingQueryException(failures.pop())
        return "done"

    assert started_in_time(run) == "done"
    failures.append("the topic is gone")
    with pytest.raises(StreamingQueryException, match="topic is gone"):
        started_in_time(run)
    failures.extend(["Python worker failed to connect back."] * 9)
    with pytest.raises(StreamingQueryException, match="connect back"):
        started_in_time(run)
    assert len(failures) == 4
