"""Line charts: thinning, axes, and what a reader without the picture learns."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client.line_chart import Point, line_chart, nice_top, short, thinned


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 1e9)), min_size=2, max_size=600),
    st.integers(3, 50),
)
def test_thinning_keeps_ends_order_and_the_peak(
    raw: list[tuple[int, float]], count_max: int
) -> None:
    points = sorted(
        {Point(time_ms, value).time_ms: Point(time_ms, value) for time_ms, value in raw}.values()
    )
    kept = thinned(points, count_max)
    assert len(kept) <= max(count_max, len(points) if len(points) <= count_max else 0)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert max(point.value for point in kept) == max(point.value for point in points)
    assert all(before.time_ms < after.time_ms for before, after in pairwise(kept))


@given(st.floats(0, 1e15))
def test_an_axis_ends_at_a_round_number_above_the_values(value: float) -> None:
    top = nice_top(value)
    assert top >= value
    assert f"{top:e}"[0] in "125"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.5, "0.5"), (950, "950"), (12_500, "12.5k"), (3e6, "3M")]
)
def test_numbers_on_a_chart_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_a_chart_is_well_formed_and_says_its_numbers() -> None:
    drawn = line_chart("lag & more", [Point(0, 0), Point(1_000, 7), Point(2_000, 3)])
    figure = ElementTree.fromstring(drawn)
    (svg,) = figure.iter("svg")
    assert svg.attrib["aria-label"] == "lag & more: now 3, at most 7"
    assert "next sample" in line_chart("lag", [Point(0, 1)])
