"""Renders cells, tables and the frame of a page as HTML: pure. It escapes all text from outside.

A table is one for wide windows. In narrow ones each row becomes a block whose cells show their
column's title, which they carry as `data-title`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple
from urllib.parse import quote

from rocketmq_cli.terminal.output import Cell, cell_text

_ROWS_MAX: Final = 500
_MENU: Final = {
    "Overview": "/",
    "Topics": "/topics",
    "Groups": "/groups",
    "Messages": "/messages",
}
_CURRENT: Final = ' aria-current="page"'
# Columns of numbers, aligned to the right although a number may be unknown.
_NUMBERS: Final = frozenset(
    {
        *("queue", "queues", "offset", "start", "end", "committed", "messages", "lag"),
        *("seconds behind", "members", "dead letters", "stored a second", "consumed a second"),
        *("log", "disk used", "retention"),
    }
)
# Columns of times and names, for which narrow windows take the width of two numbers.
_LONG: Final = frozenset(
    {
        *("newest message", "oldest message", "next unread message", "newest", "stored"),
        *("address", "cluster", "topics"),
    }
)
# Longer texts may be broken anywhere. Times with milliseconds stay in a line.
_UNBROKEN_MAX: Final = 24


class Html(NamedTuple):
    text: str


def page(title: str, content: str, refresh_s: float | None, menu: str = "") -> str:
    """A whole page; `menu` is the entry of the menu to which it belongs."""
    refresh, note = "", "times in UTC"
    if refresh_s is not None:
        # With 0 a browser would reload the page in a loop.
        seconds = max(1, math.ceil(refresh_s))
        refresh = f'<meta http-equiv="refresh" content="{seconds}">'
        note = f"refreshed every {seconds} s, times in UTC"
    entries = "".join(
        f'<a href="{path}"{_CURRENT if name == menu else ""}>{name}</a>'
        for name, path in _MENU.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{refresh}<title>{escape(title)} · RocketMQ</title>"
        '<link rel="stylesheet" href="/style.css"></head><body>'
        f"<header><strong>RocketMQ</strong><nav>{entries}</nav><span>{note}</span></header>"
        f"<main>{content}</main></body></html>"
    )


def heading(kind: str, name: str) -> str:
    """The heading of one topic or group."""
    return f"<h1><small>{kind}</small> {escape(name)}</h1>"


def link(kind: str, name: str, text: str | None = None) -> Html:
    """The name of a topic or group, or another text, with a link to its page."""
    shown = escape(name if text is None else text)
    return Html(f'<a href="/{kind}/{quote(name, safe="")}">{shown}</a>')


def facts(*pairs: tuple[str, Cell | Html]) -> str:
    """A row of numbers with their titles."""
    return (
        '<dl class="facts">'
        + "".join(f"<div><dt>{escape(t)}</dt><dd>{_text(value)}</dd></div>" for t, value in pairs)
        + "</dl>"
    )


def table(titles: Sequence[str], rows: Sequence[Sequence[Cell | Html]]) -> str:
    """A table with right-aligned numbers; it ends after 500 rows with the number of the others."""
    if not rows:
        return '<p class="hint">none</p>'
    head = "".join(
        f'<th{_class(title, is_short=True)} scope="col">{escape(title)}</th>' for title in titles
    )
    lines = "".join("<tr>" + "".join(map(_cell, titles, row)) + "</tr>" for row in rows[:_ROWS_MAX])
    more = (
        f'<p class="hint">and {len(rows) - _ROWS_MAX:,} more</p>' if len(rows) > _ROWS_MAX else ""
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>{more}"


def size_text(size: int | None) -> str | None:
    """`950 B`, `12.5 MB`, in powers of 1,000."""
    if size is None:
        return None
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1_000:
            break
        value, unit = value / 1_000, larger
    return f"{value:,.0f} B" if unit == "B" else f"{value:,.1f} {unit}"


def _cell(title: str, value: Cell | Html) -> str:
    text = _text(value)
    is_short = not isinstance(value, Html) and len(text) <= _UNBROKEN_MAX
    return f'<td{_class(title, is_short=is_short)} data-title="{escape(title)}">{text}</td>'


def _class(title: str, *, is_short: bool) -> str:
    names = [
        name
        for name, is_so in (
            ("number", title in _NUMBERS),
            ("long", title in _LONG),
            ("short", is_short and title not in _NUMBERS),
        )
        if is_so
    ]
    return f' class="{" ".join(names)}"' if names else ""


def _text(value: Cell | Html) -> str:
    return value.text if isinstance(value, Html) else escape(cell_text(value))
