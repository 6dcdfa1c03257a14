"""Suggestions for a name that is nearly a known one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_VERY_SIMILAR = 0.8


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that is most like the word, whatever its case; None if none is similar."""
    by_case = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_case, 1)
    return by_case[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?`, or nothing if no known name is similar."""
    found = nearest(word, known)
    return "" if found is None else f" Did you mean {found!r}?"


def did_you_mean_one_of(word: str, known: Iterable[str]) -> str:
    """As `did_you_mean`, but it offers each name that is about as similar as the nearest."""
    names = list(known)
    found = difflib.get_close_matches(word.lower(), names, cutoff=_VERY_SIMILAR)
    if len(found) < 2:
        return did_you_mean(word, names)
    return f" Did you mean {' or '.join(map(repr, found))}?"
