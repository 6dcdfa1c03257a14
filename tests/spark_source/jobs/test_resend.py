"""Rows at a rate, and rows that are sent again, without Spark."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from pyspark_rocketmq.jobs.resend import _LIFE, at_rate, pace
from pyspark_rocketmq.sink.encoding.batches import _ACTING
from rocketmq_wire.records.properties import LITE_TOPIC


class Clock:
    """A clock that moves when code sleeps or is slow."""

    def __init__(self) -> None:
        self.now = 0.0

    def now_s(self) -> float:
        return self.now

    def sleep_s(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def batches(*counts: int) -> list[pa.RecordBatch]:
    ends = [sum(counts[: index + 1]) for index in range(len(counts))]
    return [
        pa.record_batch({"n": pa.array(range(end - count, end))})
        for count, end in zip(counts, ends, strict=True)
    ]


def test_rows_come_when_they_are_due_and_all_of_them():
    clock = Clock()
    seen: list[tuple[float, int]] = []
    for piece in pace(100, batches(250, 1, 149), clock.now_s, clock.sleep_s):
        seen += [(clock.now, number) for number in piece["n"].to_pylist()]
    assert [number for _, number in seen] == list(range(400))
    for at, number in seen:
        # A tenth of a second's rows may come at once.
        assert number <= 100 * at + 10 + 1e-6
    assert clock.now == pytest.approx(4, abs=0.2)


def test_a_pause_of_the_taker_is_not_made_up_for():
    clock = Clock()
    pieces = pace(100, batches(1_000), clock.now_s, clock.sleep_s)
    next(pieces)
    clock.now += 60
    after = [clock.now for _ in pieces]
    assert after[-1] >= 60 + 9.5


def test_a_rate_below_one_row_a_second_works():
    clock = Clock()
    assert len(list(pace(0.5, batches(3), clock.now_s, clock.sleep_s))) == 3
    assert clock.now == pytest.approx(4)


@pytest.mark.parametrize(("rate", "tasks"), [(0, 1), (-1, 1), (5, 0)])
def test_what_is_no_rate_is_refused(rate, tasks):
    with pytest.raises(ValueError, match="no rate"):
        at_rate(cast(DataFrame, None), rate, tasks)


def test_no_property_that_would_act_again_is_sent_again():
    # A message of a lite topic is none without it: the sink refuses it, rather than change it.
    assert {*_ACTING} - {LITE_TOPIC} <= {*_LIFE}
