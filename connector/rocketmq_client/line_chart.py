"""Renders a number over time as an SVG line chart: pure, for status pages and notebooks.

The picture needs no style sheet: its colours are attributes, which the style of a page overrides.
The newest number and the highest are also text, for readers that do not see the picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timezone
from html import escape
from typing import Final, NamedTuple

_WIDTH: Final = 720
_HEIGHT: Final = 170
_TOP: Final = 24
_BOTTOM: Final = 28
_POINTS_MAX: Final = 240
_COLOUR: Final = "#0b66c3"


class Point(NamedTuple):
    time_ms: int
    value: float


def line_chart(title: str, points: Sequence[Point]) -> str:
    """Render values over time as SVG, or a sentence if there are fewer than two."""
    if len(points) < 2:
        return f'<p class="hint">{escape(title)}: the chart begins with the next sample.</p>'
    points = thinned(points, _POINTS_MAX)
    highest = max(point.value for point in points)
    top = nice_top(highest)
    first, last = points[0].time_ms, points[-1].time_ms
    span = max(last - first, 1)

    def x(time_ms: int) -> float:
        return (time_ms - first) / span * _WIDTH

    def y(value: float) -> float:
        return _TOP + (1 - value / top) * (_HEIGHT - _TOP - _BOTTOM)

    line = " ".join(f"{x(point.time_ms):.1f},{y(point.value):.1f}" for point in points)
    area = f"{x(first):.1f},{y(0):.1f} {line} {x(last):.1f},{y(0):.1f}"
    levels = (0, top / 2, top)
    grid = "".join(
        f'<line class="grid" x1="0" x2="{_WIDTH}" y1="{y(v):.1f}" y2="{y(v):.1f}" '
        f'stroke="currentColor" stroke-opacity=".25"/>'
        for v in levels
    )
    # Labels stand on their lines, so that the chart is as wide as the text around it.
    labels = "".join(f'<text x="0" y="{y(v) - 4:.1f}">{short(v)}</text>' for v in levels)
    times = "".join(
        f'<text x="{x(at):.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{_clock(at)}</text>'
        for at, anchor in ((first, "start"), (last, "end"))
    )
    now = points[-1].value
    return (
        f"<figure><figcaption>{escape(title)} <b>{short(now)}</b></figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" fill="currentColor" '
        f'font-size="11" role="img" aria-label="{escape(title)}: now {short(now)}, at most '
        f'{short(highest)}"><polygon class="area" points="{area}" fill="{_COLOUR}" '
        f'fill-opacity=".15"/>{grid}<polyline class="line" points="{line}" fill="none" '
        f'stroke="{_COLOUR}" stroke-width="2"/>{labels}{times}</svg></figure>'
    )


def thinned(points: Sequence[Point], count_max: int) -> Sequence[Point]:
    """Keep at most `count_max` points, of each stretch the highest, so that no peak is lost."""
    if len(points) <= count_max:
        return points
    step = len(points) / (count_max - 2)
    kept = [points[0]]
    for number in range(count_max - 2):
        stretch = points[int(number * step) : max(int((number + 1) * step), int(number * step) + 1)]
        kept.append(max(stretch, key=lambda point: point.value))
    kept.append(points[-1])
    return sorted(dict.fromkeys(kept))


def nice_top(value: float) -> float:
    """The axis' end: the next of 1, 2, 5, 10, 20 … at or above a value."""
    if value <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value)


def short(value: float) -> str:
    """`950`, `12.5k`, `3M`."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scaled = value / (1e3 if unit == "k" else limit)
            return f"{scaled:.1f}".rstrip("0").rstrip(".") + unit
    return f"{value:,.1f}".removesuffix(".0")


def _clock(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, tz=timezone.utc).strftime("%H:%M:%S")
