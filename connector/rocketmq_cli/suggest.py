"""What helps somebody who mistyped a name, and the question before something is deleted."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches

from rocketmq_cli.usage import UsageError


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or nothing."""
    found = get_close_matches(word, list(known), 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask at a terminal; elsewhere `--yes` must have been given. Raises UsageError for a no."""
    if is_sure:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question} Give --yes: there is nobody to ask here")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was done")
