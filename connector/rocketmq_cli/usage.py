"""Usage errors, exit codes, moments and lengths of time, and what a command says or asks."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_EXCEEDED = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_MILLISECONDS_DIGITS = 12
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class UsageError(Exception):
    """The command line cannot be executed; the text says what to give."""


class NotThereError(UsageError):
    """The cluster does not have what the command line names."""


class PartlyDoneError(Exception):
    """The work failed half way, for the reason that is this error's cause."""


@contextmanager
def partly_done(so_far: Callable[[], str]) -> Iterator[None]:
    """Report what was done before an error, behind that error. Raises PartlyDoneError."""
    try:
        yield
    except BaseException as error:
        raise PartlyDoneError(so_far()) from error


def require_positive(option: str, value: int | None) -> None:
    """Raise UsageError for a number below 1; None stands for an absent option."""
    if value is not None and value < 1:
        raise UsageError(f"{option} must be 1 or more, not {value}")


def visible(text: str) -> str:
    """The text with escapes in place of control characters, which could rule a terminal."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def visible_bytes(text: bytes) -> bytes:
    """As `visible`, for UTF-8 that may have errors."""
    return visible(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def report(text: str) -> None:
    """Print a line on standard error, after the command's name."""
    print(f"rmq: {visible(text)}", file=sys.stderr, flush=True)


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask at a terminal; elsewhere `--yes` is required. Raises UsageError for a no."""
    if is_sure:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question} Give --yes: there is no terminal to ask at")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was done")


def parse_duration_ms(text: str, *, unit: str = "") -> int:
    """Parse `500ms`, `30s`, `15m`, `2h`, `1d` into milliseconds; a bare number is in `unit`.

    Raises UsageError.
    """
    text = text.strip()
    match = _DURATION.fullmatch(text) or _DURATION.fullmatch(text + unit)
    if match is None:
        raise UsageError(f"{text!r} is no length of time: write it like 500ms, 30s, 15m, 2h or 1d")
    return round(float(match[1]) * _UNITS_MS[match[2]])


def parse_moment_ms(text: str, now_ms: int) -> int:
    """Parse a moment into milliseconds since 1970: a number, ISO 8601, or `2h` for two hours ago.

    A date without a zone is in the local one. Raises UsageError.
    """
    from datetime import datetime, timedelta, timezone

    text = text.strip()
    if text.isdigit() and len(text) >= _MILLISECONDS_DIGITS:
        return int(text)
    if _DURATION.fullmatch(text):
        return now_ms - parse_duration_ms(text)
    try:
        # Python 3.10 does not read a Z.
        found = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise UsageError(
            f"{text!r} is no time: write it like 2026-01-31T12:00:00Z, as milliseconds since 1970,"
            " or as an age like 2h"
        ) from None
    if found.tzinfo is None:
        found = found.astimezone()
    return (found - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)
