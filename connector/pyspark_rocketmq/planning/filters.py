"""Filters of a query -> the parts of queues that can hold rows which pass. Pure.

Spark evaluates every filter itself, so a plan may read too much, but never too little. A filter
that is not understood narrows nothing.

- Offsets, topics, brokers and queues are exact: a message's offset never changes.
- Tags work as the option `tags`: the broker compares hashes, the reader compares the tags, which
  are what the column holds. A tag that an expression cannot name is left to Spark.
- Store times come from a broker's clock, which may have been set back. As long as no message has a
  store time more than `CLOCK_STEP_MS_MAX` below that of an earlier one, an offset whose time is
  that much below the wanted times has none of them before it, and an offset whose time is as much
  above has none behind it.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark_rocketmq.planning.batch import PlannedQueue
from rocketmq_wire.model import QueueId

CLOCK_STEP_MS_MAX: Final = 3_600_000
_TAG: Final = re.compile(r"[!-{}~]+")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MS: Final = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with values: `kind` is `in`, `>`, `>=`, `<` or `<=`."""

    column: str
    kind: str
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from `start` to before `end`; None: no limit on that side."""

    start: int | None = None
    end: int | None = None

    def __and__(self, other: Span) -> Span:
        starts = [n for n in (self.start, other.start) if n is not None]
        ends = [n for n in (self.end, other.end) if n is not None]
        return Span(max(starts, default=None), min(ends, default=None))

    def has(self, number: int) -> bool:
        return (self.start is None or number >= self.start) and (
            self.end is None or number < self.end
        )


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The values of rows that can pass; None and an open span: any value."""

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    queues: Span = Span()
    offsets: Span = Span()
    times_ms: Span = Span()

    def holds(self, queue: QueueId) -> bool:
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.brokers is None or queue.broker in self.brokers)
            and self.queues.has(queue.index)
        )


def narrowing_of(comparisons: Iterable[Comparison]) -> Narrowing:
    found = Narrowing()
    for each in comparisons:
        if each.column == "topic":
            found = replace(found, topics=_named(found.topics, each))
        elif each.column == "brokerName":
            found = replace(found, brokers=_named(found.brokers, each))
        elif each.column == "tags" and all(map(is_plain_tag, each.values)):
            found = replace(found, tags=_named(found.tags, each))
        elif each.column == "queueId":
            found = replace(found, queues=found.queues & _whole(each))
        elif each.column == "queueOffset":
            found = replace(found, offsets=found.offsets & _whole(each))
        elif each.column == "storeTimestamp":
            found = replace(found, times_ms=found.times_ms & _moments(each))
    return found


def _named(before: frozenset[str] | None, comparison: Comparison) -> frozenset[str] | None:
    names = frozenset(value for value in comparison.values if isinstance(value, str))
    if comparison.kind != "in" or len(names) != len(set(comparison.values)):
        return before
    return names if before is None else before & names


def is_plain_tag(tag: object) -> bool:
    """True if a tag expression can name this tag and no other."""
    return isinstance(tag, str) and _TAG.fullmatch(tag) is not None and tag != "*"


def _whole(comparison: Comparison) -> Span:
    numbers = [value for value in comparison.values if type(value) is int]
    if not numbers or len(numbers) != len(comparison.values):
        return Span()
    return _span(comparison.kind, numbers, numbers)


def _moments(comparison: Comparison) -> Span:
    moments = [
        value
        for value in comparison.values
        if isinstance(value, datetime.datetime) and value.tzinfo is not None
    ]
    if not moments or len(moments) != len(comparison.values):
        return Span()
    floors = [(value - _EPOCH) // _MS for value in moments]
    ceilings = [-((_EPOCH - value) // _MS) for value in moments]
    return _span(comparison.kind, floors, ceilings)


def _span(kind: str, floors: Sequence[int], ceilings: Sequence[int]) -> Span:
    """Return the numbers that pass; a value between two numbers is given by both."""
    if kind == "in":
        return Span(min(floors), max(ceilings) + 1)
    spans = {
        ">": Span(floors[0] + 1),
        ">=": Span(ceilings[0]),
        "<": Span(None, ceilings[0]),
        "<=": Span(None, floors[0] + 1),
    }
    return spans[kind]


def narrow_queues(
    queues: Sequence[PlannedQueue], narrowing: Narrowing, spans: Mapping[QueueId, Span]
) -> list[PlannedQueue]:
    """Cut off the offsets that cannot pass; `spans` are the offsets that store times allow.

    A queue without any such rows stays in the plan with nothing to read, so that no task takes it
    for a queue created later.
    """
    nothing = narrowing.tags is not None and not narrowing.tags
    narrowed = []
    for known in queues:
        if nothing or not narrowing.holds(known.queue):
            narrowed.append(PlannedQueue(known.queue, known.start, known.start))
        else:
            wanted = narrowing.offsets & spans.get(known.queue, Span())
            narrowed.append(_cut(known, wanted))
    return narrowed


def _cut(known: PlannedQueue, wanted: Span) -> PlannedQueue:
    start, end = known.start, max(known.start, known.end)
    is_start_late, is_end_late = known.is_start_late, known.is_end_late
    # Nothing is known beyond the planned end: a late end stays late, and so do the offsets before
    # it.
    if wanted.end is not None and wanted.end <= end:
        end, is_end_late = max(start, wanted.end), False
    if wanted.start is not None and wanted.start > start:
        start, is_start_late = min(wanted.start, end), False
    return PlannedQueue(known.queue, start, end, is_start_late, is_end_late)


def late_topics_of(topics: Iterable[str], narrowing: Narrowing) -> set[str]:
    """Return the topics whose future queues can have rows that pass."""
    return {topic for topic in topics if narrowing.topics is None or topic in narrowing.topics}
