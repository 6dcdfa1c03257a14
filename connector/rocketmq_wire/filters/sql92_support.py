"""Detects words of an SQL92 filter that a broker is too old for, and so evaluates differently.

Brokers before 5.1.3 take these words for names of properties. They ignore the rest after a complete
expression, and do not filter if there is no complete expression; neither is an error to them.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from rocketmq_wire.errors import FilterWordsError
from rocketmq_wire.model import Subscription

V5_1_3: Final = 439
"""The version number in every answer of a broker of that release."""

_WORDS: Final = re.compile(r"\b(?:CONTAINS|STARTSWITH|ENDSWITH)\b", re.IGNORECASE)
_TEXTS_AND_COMMENTS: Final = re.compile(r"'(?:[^']|'')*'|--[^\n\r]*|/\*.*?\*/", re.DOTALL)
_EXPRESSIONS_MAX: Final = 256


def check_words(subscription: Subscription, broker: str, version: int) -> None:
    """Raises FilterWordsError for an answer of a broker that is too old for the filter."""
    if subscription.kind != "SQL92" or version >= V5_1_3:
        return
    words = _new_words(subscription.expression)
    if words:
        raise FilterWordsError(broker, version_name(version), words)


def version_name(version: int) -> str:
    """The release of a version number, such as 4.9.7; empty for 0, which means unknown."""
    # Every release has two numbers, the first one for its snapshots.
    release = (version - 212) // 2
    if release < 0:
        return ""
    return f"{4 + release // 100}.{release // 10 % 10}.{release % 10}"


@functools.lru_cache(_EXPRESSIONS_MAX)
def _new_words(expression: str) -> tuple[str, ...]:
    bare = _TEXTS_AND_COMMENTS.sub(" ", expression)
    return tuple(dict.fromkeys(word.upper() for word in _WORDS.findall(bare)))
