"""Renders samples and messages as HTML pages with charts: pure. It escapes all text from outside.

Charts are SVG. Colours come from the page's style, so that they follow light and dark. The newest
number and the highest are also text, for readers that do not see the picture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from typing import Final, NamedTuple
from urllib.parse import quote

from rocketmq_cli.status_page.history import History, Point, Sample
from rocketmq_cli.terminal.output import Cell, cell_text, moment

_BODY_SHOWN: Final = 600
_ROWS_MAX: Final = 500
_PROBLEMS_MAX: Final = 20
_WIDTH: Final = 720
_HEIGHT: Final = 170
_LEFT: Final = 64
_RIGHT: Final = 12
_TOP: Final = 18
_BOTTOM: Final = 28
_POINTS_MAX: Final = 240


class Html(NamedTuple):
    text: str


_UP: Final = Html('<span class="good">up</span>')
_DOWN: Final = Html('<span class="bad">no answer</span>')


def overview(history: History, interval_s: float) -> str:
    """Brokers, throughput, and the groups with the largest lag."""
    sample = history.newest
    if sample is None:
        return page(
            "Overview", "<h1>Overview</h1><p class='hint'>Looking at the cluster…</p>", interval_s
        )
    brokers = [
        (
            broker.name,
            broker.cluster,
            broker.address,
            _UP if broker.error is None else _DOWN,
            broker.runtime.get("brokerVersionDesc", "-"),
        )
        for broker in sample.brokers
    ]
    furthest = sorted(((sample.lag(g), g) for g in sample.groups), reverse=True)[:10]
    parts = [
        "<h1>Overview</h1>",
        _problems(sample),
        line_chart("messages stored a second", history.topic().rate.points()),
        "<h2>Brokers</h2>",
        table(("broker", "cluster", "address", "state", "version"), brokers),
        "<h2>Groups furthest behind</h2>",
        table(("group", "lag"), [(_link("groups", name), lag) for lag, name in furthest]),
    ]
    return page("Overview", "".join(parts), interval_s)


def topics(history: History, interval_s: float) -> str:
    sample = history.newest or Sample(0)
    rows = [
        (
            _link("topics", name),
            len(queues),
            sample.message_count(name),
            _rate(history.topic(name).rate.value_at(sample.time_ms)),
            _newest(sample, name),
        )
        for name, queues in sorted(sample.topics.items())
    ]
    titles = ("topic", "queues", "messages", "stored a second", "newest message")
    return page("Topics", f"<h1>Topics</h1>{_problems(sample)}{table(titles, rows)}", interval_s)


def topic(history: History, name: str, interval_s: float) -> str | None:
    """One topic: throughput, queues, groups. None if it does not exist."""
    sample = history.newest
    if sample is None or name not in sample.topics:
        return None
    queues = [
        (q.broker, q.index, stat.start, stat.end, stat.end - stat.start, moment(stat.updated_ms))
        for q, stat in sorted(sample.topics[name].items())
    ]
    readers = [
        (_link("groups", group), sample.lag(group, name))
        for group, offsets in sorted(sample.groups.items())
        if any(queue.topic == name for queue in offsets)
    ]
    browse = f'<p><a href="/messages?topic={quote(name, safe="")}">Browse messages</a></p>'
    parts = [
        f"<h1>{escape(name)}</h1>",
        _problems(sample),
        browse,
        line_chart("messages stored a second", history.topic(name).rate.points()),
        "<h2>Queues</h2>",
        table(("broker", "queue", "start", "end", "messages", "newest"), queues),
        "<h2>Groups</h2>",
        table(("group", "lag"), readers),
    ]
    return page(name, "".join(parts), interval_s)


def groups(history: History, interval_s: float) -> str:
    sample = history.newest or Sample(0)
    rows = [
        (
            _link("groups", name),
            ", ".join(sorted({queue.topic for queue in offsets})),
            sample.lag(name),
            _rate(history.group(name).rate.value_at(sample.time_ms)),
        )
        for name, offsets in sorted(sample.groups.items())
    ]
    titles = ("group", "topics", "lag", "consumed a second")
    return page("Groups", f"<h1>Groups</h1>{_problems(sample)}{table(titles, rows)}", interval_s)


def group(history: History, name: str, interval_s: float) -> str | None:
    """One group: its lag over time, and every queue. None if it does not exist."""
    sample = history.newest
    if sample is None or name not in sample.groups:
        return None
    rows = [
        (
            _link("topics", q.topic),
            q.broker,
            q.index,
            at.consumer_offset,
            at.broker_offset,
            at.lag,
            moment(at.updated_ms),
        )
        for q, at in sorted(sample.groups[name].items())
    ]
    titles = ("topic", "broker", "queue", "committed", "end", "lag", "last one stored")
    parts = [
        f"<h1>{escape(name)}</h1>",
        _problems(sample),
        line_chart("lag", history.group(name).lag.points()),
        line_chart("messages consumed a second", history.group(name).rate.points()),
        "<h2>Queues</h2>",
        table(titles, rows),
    ]
    return page(name, "".join(parts), interval_s)


def messages(
    wanted: Mapping[str, str], found: Sequence[Mapping[str, Cell]], problem: str | None
) -> str:
    """The message browser: the form and the messages found. It does not refresh."""

    def field(name: str, title: str) -> str:
        value = escape(wanted.get(name, ""), quote=True)
        return f'<label>{title}<input name="{name}" value="{value}"></label>'

    form = (
        '<form action="/messages">'
        + field("topic", "topic")
        + field("key", "key or id")
        + field("queue", "queue")
        + field("offset", "from offset")
        + "<button>Show</button></form>"
    )
    rows = [
        (
            f"{record['broker']}/{record['queue']}",
            record["offset"],
            record["stored"],
            record["tags"],
            record["keys"],
            Html(f'<span class="body">{escape(_cut(str(record["body"])))}</span>'),
        )
        for record in found
    ]
    hint = "<p class='hint'>Give a topic; alone it shows the newest messages of every queue.</p>"
    result = table(("queue", "offset", "stored", "tags", "keys", "body"), rows) if rows else ""
    if problem is not None:
        result = f'<p class="problem">{escape(problem)}</p>'
    elif not rows:
        result = "<p>No messages.</p>" if wanted.get("topic") else hint
    return page("Messages", f"<h1>Messages</h1>{form}{result}", None)


def missing(what: str) -> str:
    return page("Not found", f"<h1>Not found</h1><p>There is no {escape(what)} here.</p>", None)


def page(title: str, content: str, refresh_s: float | None) -> str:
    refresh = note = ""
    if refresh_s is not None:
        # With 0 a browser would reload the page in a loop.
        seconds = max(1, math.ceil(refresh_s))
        refresh = f'<meta http-equiv="refresh" content="{seconds}">'
        note = f"<span>refreshed every {seconds} s, times in UTC</span>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{refresh}<title>{escape(title)} · RocketMQ</title>"
        '<link rel="stylesheet" href="/style.css"></head><body>'
        '<header><strong>RocketMQ</strong><nav><a href="/">Overview</a><a href="/topics">Topics</a>'
        f'<a href="/groups">Groups</a><a href="/messages">Messages</a></nav>{note}</header>'
        f"<main>{content}</main></body></html>"
    )


def table(titles: Sequence[str], rows: Sequence[Sequence[Cell | Html]]) -> str:
    """A table with right-aligned numbers; it ends after 500 rows with the number of the others."""
    if not rows:
        return '<p class="hint">none</p>'
    numbers = [all(_is_number(row[at]) for row in rows) for at in range(len(titles))]
    head = "".join(
        _cell("th", title, number) for title, number in zip(titles, numbers, strict=True)
    )
    lines = "".join(
        "<tr>" + "".join(_cell("td", c, n) for c, n in zip(row, numbers, strict=True)) + "</tr>"
        for row in rows[:_ROWS_MAX]
    )
    more = (
        f'<p class="hint">and {len(rows) - _ROWS_MAX:,} more</p>' if len(rows) > _ROWS_MAX else ""
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{lines}</table></div>{more}'


def _link(kind: str, name: str) -> Html:
    """The name of a topic or group with a link to its page."""
    return Html(f'<a href="/{kind}/{quote(name, safe="")}">{escape(name)}</a>')


def _cell(kind: str, value: Cell | Html, is_number: bool) -> str:
    text = value.text if isinstance(value, Html) else escape(cell_text(value))
    return f'<{kind} class="number">{text}</{kind}>' if is_number else f"<{kind}>{text}</{kind}>"


def _is_number(value: Cell | Html) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _problems(sample: Sample) -> str:
    unavailable = [
        f"no answer from broker {broker.name}: {broker.error}. The numbers here leave it out."
        for broker in sample.brokers
        if broker.error is not None
    ]
    said = [*unavailable, *sample.problems][:_PROBLEMS_MAX]
    return "".join(f'<p class="problem">{escape(text)}</p>' for text in said)


def _newest(sample: Sample, name: str) -> Cell:
    return moment(max((stat.updated_ms for stat in sample.topics[name].values()), default=0))


def _rate(value: float | None) -> str:
    return "-" if value is None else short(value)


def _cut(text: str) -> str:
    return text if len(text) <= _BODY_SHOWN else f"{text[:_BODY_SHOWN]}… ({len(text):,} characters)"


def line_chart(title: str, points: Sequence[Point]) -> str:
    """Render values over time as SVG, or a sentence if there are fewer than two."""
    if len(points) < 2:
        return f'<p class="hint">{escape(title)}: the chart begins with the next sample.</p>'
    points = thinned(points, _POINTS_MAX)
    top = nice_top(max(point.value for point in points))
    first, last = points[0].time_ms, points[-1].time_ms
    span = max(last - first, 1)

    def x(time_ms: int) -> float:
        return _LEFT + (time_ms - first) / span * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _TOP + (1 - value / top) * (_HEIGHT - _TOP - _BOTTOM)

    line = " ".join(f"{x(point.time_ms):.1f},{y(point.value):.1f}" for point in points)
    area = f"{x(first):.1f},{y(0):.1f} {line} {x(last):.1f},{y(0):.1f}"
    grid = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{short(v)}</text>'
        for v in (0, top / 2, top)
    )
    times = "".join(
        f'<text x="{x(at):.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{_clock(at)}</text>'
        for at, anchor in ((first, "start"), (last, "end"))
    )
    now = points[-1].value
    return (
        f"<figure><figcaption>{escape(title)} <b>{short(now)}</b></figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}: now '
        f'{short(now)}, at most {short(max(point.value for point in points))}">'
        f'{grid}{times}<polygon class="area" points="{area}"/>'
        f'<polyline class="line" points="{line}"/></svg></figure>'
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
