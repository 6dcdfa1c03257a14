"""Spark's query progress -> the source offsets of this connector in it. Pure.

Classic Spark hands listeners objects, Spark Connect and older versions dicts, and the offsets in
them are JSON text or already parsed: all of these are taken.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_rocketmq.offsets import flat
from rocketmq_wire.model import QueueId


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source's part of a progress report."""

    end: Mapping[QueueId, int]
    """Where its last batch ended."""
    latest: Mapping[QueueId, int]
    """How far its queues reached then; empty before Spark 4.2."""


def source_progress(progress: object) -> list[SourceProgress]:
    """The sources of this connector in one query's progress (`query.lastProgress`)."""
    found = []
    for source in _get(progress, "sources") or []:
        end = _offsets(_get(source, "endOffset"))
        if end is not None:
            found.append(SourceProgress(end, _offsets(_get(source, "latestOffset")) or {}))
    return found


def _get(value: object, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)


def _offsets(value: object) -> dict[QueueId, int] | None:
    """The offsets in one JSON; None when another source wrote it."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return None
    if not isinstance(value, Mapping) or value.get("version") != 1:
        return None
    try:
        return flat(value["offsets"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
