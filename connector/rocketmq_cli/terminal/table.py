"""Rows of text as an aligned table for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone


def format_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns: numbers to the right, text to the left, two blanks between."""
    lines = [list(titles), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    is_number = [
        bool(rows) and all(_is_number(row[column]) for row in rows) for column in range(len(titles))
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in lines
    )


def format_time(time_ms: int) -> str:
    """Milliseconds since 1970 as UTC to the millisecond; `-` for none."""
    if time_ms <= 0:
        return "-"
    moment = datetime.fromtimestamp(time_ms / 1000, tz=timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03d}Z"


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").removeprefix("-").isdigit()
