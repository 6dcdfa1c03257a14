"""Usage errors, exit codes, and what a command says or asks on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_EXCEEDED = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class UsageError(Exception):
    """The command line cannot be executed; the text says what to give."""


def require_positive(option: str, value: int | None) -> None:
    """Raise UsageError for a number below 1; None stands for an absent option."""
    if value is not None and value < 1:
        raise UsageError(f"{option} must be 1 or more, not {value}")


def report(text: str) -> None:
    """Print a line on standard error, after the command's name."""
    print(f"rmq: {text}", file=sys.stderr, flush=True)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?`, or nothing if no known word is similar."""
    found = get_close_matches(word, list(known), 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask at a terminal; elsewhere `--yes` is required. Raises UsageError for a no."""
    if is_sure:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question} Give --yes: there is no terminal to ask at")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was done")
