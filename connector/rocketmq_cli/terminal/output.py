"""Prints records: an aligned table for people, one JSON object a line for programs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Final, TypeAlias

from rocketmq_cli.usage import visible

Cell: TypeAlias = (
    "str | int | float | bool | datetime | Sequence[str] | Mapping[str, str | int] | None"
)
Record: TypeAlias = Mapping[str, Cell]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
# The last millisecond that datetime takes; columns of times end there, too.
_TIME_MS_MAX: Final = 253_402_300_799_999


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def titles_of(*names: str, **renamed: str) -> dict[str, str]:
    """The columns of a table: fields under their own names, then fields with other titles."""
    return {name: name for name in names} | renamed


def show_json(*records: Record) -> None:
    """Print all fields of records, one JSON object a line."""
    for record in records:
        print(json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=_json_of))


def show_result(record: Record, text: str, *, as_json: bool) -> None:
    """Print a record as JSON, or the text that says the same to people."""
    if as_json:
        show_json(record)
    else:
        print(text)


def show(records: Iterable[Record], titles: Mapping[str, str], *, as_json: bool) -> None:
    """Print records: all fields as JSON, or those with a title as a table."""
    if as_json:
        show_json(*records)
        return
    rows = [[cell_text(record[name]) for name in titles] for record in records]
    if rows:
        print(format_table(tuple(titles.values()), rows))


def moment(time_ms: int | None) -> datetime | None:
    """Milliseconds since 1970 as a datetime, at most its last one; None for 0 and less."""
    if time_ms is None or time_ms <= 0:
        return None
    # Producers choose the born time of their messages.
    return _EPOCH + timedelta(milliseconds=min(time_ms, _TIME_MS_MAX))


def cell_text(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, datetime):
        return _iso(value, " ")
    if isinstance(value, Mapping):
        return visible(" ".join(f"{key}={text}" for key, text in value.items()))
    return visible(value if isinstance(value, str) else ", ".join(value))


def _json_of(value: object) -> object:
    if isinstance(value, datetime):
        return _iso(value, "T")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def broker_version(settings: Mapping[str, str]) -> str | None:
    """A broker's release from the settings that it reports: `5.3.3` for `V5_3_3`."""
    name = settings.get("brokerVersionDesc")
    return None if name is None else name.removeprefix("V").replace("_", ".")


def format_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns: numbers to the right, text to the left, two blanks between."""
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


def _iso(moment: datetime, separator: str) -> str:
    return moment.isoformat(separator, "milliseconds").replace("+00:00", "Z")


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").removeprefix("-").isdigit()
