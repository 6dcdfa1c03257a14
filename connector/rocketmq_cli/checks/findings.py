"""What a check found, and what to do about it."""

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
    """All is well."""
    return Finding("ok  ", what, found)


def note(what: str, found: str, remedy: str = "") -> Finding:
    """It works, and something is worth knowing."""
    return Finding("note", what, found, remedy)


def fail(what: str, found: str, remedy: str) -> Finding:
    """It will not work."""
    return Finding("FAIL", what, found, remedy)
