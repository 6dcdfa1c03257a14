"""What is wrong with a command line, or with its work, and the codes that a command ends with."""

from __future__ import annotations

import sys

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_EXCEEDED = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class UsageError(Exception):
    """The command line cannot be carried out as given; says what to give."""


def require_positive(option: str, value: int | None) -> None:
    """Raise UsageError for a number below 1; None is an option that is not given."""
    if value is not None and value < 1:
        raise UsageError(f"{option} must be 1 or more, not {value}")


def report(text: str) -> None:
    """Prints a line on standard error, under the command's name."""
    print(f"rmq: {text}", file=sys.stderr, flush=True)
