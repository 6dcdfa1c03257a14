"""A query's lag over time: its measurements, and what a notebook draws of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_rocketmq import LagChart
from pyspark_rocketmq.monitoring import lag_chart
from pyspark_rocketmq.monitoring.lag import Lag, QueueLag
from rocketmq_wire.model import QueueId


def progress(end: int, latest: int) -> dict[str, Any]:
    def offset(at: int) -> dict[str, Any]:
        return {"version": 1, "offsets": {"orders": {"b": {"0": at}}}, "births": {}, "starts": {}}

    return {"sources": [{"endOffset": offset(end), "latestOffset": offset(latest)}]}


def test_each_measurement_adds_a_point_once_there_is_a_batch() -> None:
    query = SimpleNamespace(lastProgress=None)
    chart = LagChart(query)  # type: ignore[arg-type]
    assert chart.measure() is None
    for end, latest in ((2, 5), (4, 9), (9, 9)):
        query.lastProgress = progress(end, latest)
        chart.measure()
    assert [point.value for point in chart.messages] == [3, 5, 0]
    drawn = chart._repr_html_()
    assert "messages behind: now 0, at most 5" in drawn
    assert "seconds" not in drawn


def test_a_chart_with_options_shows_seconds_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    ages = iter((4.0, None, 0.0))

    def measured(*_: object) -> Lag:
        return Lag({QueueId("orders", "b", 0): QueueLag(7, next(ages))})

    monkeypatch.setattr(lag_chart, "measure_lag", measured)
    query = SimpleNamespace(lastProgress=progress(0, 7))
    chart = LagChart(query, {"nameServer": "b:1"})  # type: ignore[arg-type]
    for _ in range(3):
        chart.measure()
    assert [point.value for point in chart.seconds] == [4.0, 0.0]
    assert "seconds behind: now 0, at most 4" in chart._repr_html_()


def test_a_chart_needs_no_style_sheet() -> None:
    chart = LagChart(SimpleNamespace(lastProgress=progress(0, 7)))  # type: ignore[arg-type]
    chart.measure()
    chart.measure()
    drawn = chart._repr_html_()
    assert 'fill="none" stroke="#' in drawn
    assert "style" not in drawn
