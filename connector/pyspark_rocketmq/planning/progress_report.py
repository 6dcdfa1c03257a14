"""Spark's query progress -> the source offsets of this connector in it. Pure.

Classic Spark hands listeners objects, Spark Connect and older versions dicts, and the offsets in
them are JSON text or already parsed: all of these are taken.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_rocketmq.planning.checkpoint import flat
from rocketmq_wire.model import QueueId


@dataclass(frozen=True, slots=True)
class SourceProgress:
    end: Mapping[QueueId, int]
    """Where its last batch ended."""
    latest: Mapping[QueueId, int]
    """How far its queues reached then; empty before Spark 4.2."""
    is_initial: bool = False
    """True while nothing was read: such an offset is never committed."""


def source_progress(progress: object) -> list[SourceProgress]:
    """The sources of this connector in one query's progress (`query.lastProgress`)."""
    found = []
    for source in field_of(progress, "sources") or []:
        value = _parsed(field_of(source, "endOffset"))
        end = _numbers(value)
        if end is not None:
            latest = _numbers(_parsed(field_of(source, "latestOffset")))
            is_initial = isinstance(value, Mapping) and value.get("initial") is True
            found.append(SourceProgress(end, latest or {}, is_initial))
    return found


def field_of(value: object, name: str) -> Any:
    """A field of an object or a dict; Spark Connect's progress is both, its dict half empty."""
    found = getattr(value, name, None)
    return value.get(name) if found is None and isinstance(value, Mapping) else found


def _parsed(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return None


def _numbers(value: object) -> dict[QueueId, int] | None:
    """The numbers of an offset; None when another source wrote it."""
    if not isinstance(value, Mapping) or value.get("version") != 1:
        return None
    try:
        return flat(value["offsets"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
