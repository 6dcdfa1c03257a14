"""The result of a check, and its remedy."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One line of `rmq check`."""

    state: str
    """`ok  `, `note` or `FAIL`."""
    what: str
    found: str
    remedy: str = ""


def ok(what: str, found: str) -> Finding:
    """The check passed."""
    return Finding("ok  ", what, found)


def note(what: str, found: str, remedy: str = "") -> Finding:
    """The check passed, with a remark."""
    return Finding("note", what, found, remedy)


def fail(what: str, found: str, remedy: str) -> Finding:
    """The check failed."""
    return Finding("FAIL", what, found, remedy)
