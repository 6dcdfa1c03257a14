"""Spark's batch calls with filters (`pushFilters`, Spark 4.1 and later) -> a narrower plan.

Every filter goes back to Spark, which evaluates them all: the plan only leaves out what cannot
pass. Spark 4.1 to 4.3 keep one plan for each `.load()`, that of the last filters, and use it for
every later query, even one without filters. So a task refuses a plan that is older than its query:
it belongs to another query.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import IntegerType, LongType, StringType, StructType, TimestampType

from pyspark_rocketmq.errors import UnsupportedError
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.batch import PlannedQueue
from pyspark_rocketmq.planning.filters import (
    CLOCK_STEP_MS_MAX,
    Comparison,
    Narrowing,
    Span,
    late_topics_of,
    narrow_queues,
    narrowing_of,
)
from pyspark_rocketmq.read.batch_reader import BatchReader
from pyspark_rocketmq.read.plan import ReadPlan
from rocketmq_client.cluster import Cluster
from rocketmq_wire.errors import split_answers
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.requests.offsets import Boundary

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter, InputPartition

_KINDS: Final = {
    "EqualTo": "in",
    "EqualNullSafe": "in",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_COMPARED: Final = (StringType(), IntegerType(), LongType(), TimestampType())
# A UUID of version 7 among each task's properties: it begins with the time of its creation.
_QUERY_ID: Final = "spark.sql.execution.query.id"


class FilteredReader(BatchReader):
    def __init__(self, options: ReadOptions, plan: ReadPlan, columns: Mapping[str, str]) -> None:
        super().__init__(options, plan)
        self._columns = columns
        self._narrowing = Narrowing()
        self._pushed_ms: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the plan by the filters, and return all of them to Spark."""
        self._pushed_ms = int(time.time() * 1_000)
        narrowing = narrowing_of(comparisons_of(filters, self._columns))
        self._plan, self._narrowing = narrow_tags(self._plan, narrowing)
        return filters

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task of the query that pushed the filters."""
        context = TaskContext.get()
        if self._pushed_ms is not None and context is not None:
            check_query(context.getLocalProperty(_QUERY_ID), self._pushed_ms)
        return super().read(partition)

    def _narrowed(self, cluster: Cluster, queues: list[PlannedQueue]) -> list[PlannedQueue]:
        wanted = [known for known in queues if self._narrowing.holds(known.queue)]
        spans = spans_of_times(cluster, wanted, self._narrowing.times_ms)
        return narrow_queues(queues, self._narrowing, spans)

    def _open_topics(self, topics: set[str]) -> set[str]:
        return late_topics_of(topics, self._narrowing)


def open_filtered_reader(
    options: ReadOptions, plan: ReadPlan, schema: StructType
) -> FilteredReader:
    """Make the reader. Raises UnsupportedError if this Spark pushes no filters down."""
    if not hasattr(DataSourceReader, "pushFilters"):
        raise UnsupportedError(
            "PUSH_DOWN",
            "pushDown needs Spark 4.1 or later: leave it out, and select what to read by tags, "
            "assign, startingOffsets or startingTimestamp",
        )
    columns = comparable_columns(schema, is_typed=options.bodies.body_format is not None)
    return FilteredReader(options, plan, columns)


def comparable_columns(schema: StructType, *, is_typed: bool) -> dict[str, str]:
    """Return the columns whose values compare as stored, by their names in the schema.

    If fields of bodies are columns, only names with two underscores in front are columns of
    messages. Texts with a collation of their own do not compare as stored.
    """
    found = {}
    for field in schema.fields:
        name = field.name
        if field.dataType not in _COMPARED:
            continue
        if not is_typed:
            found[name] = name
        elif name == "__offset":
            found[name] = "queueOffset"
        elif name.startswith("__"):
            found[name] = name[2:]
    return found


def comparisons_of(filters: Sequence[Filter], columns: Mapping[str, str]) -> list[Comparison]:
    """Return the filters that compare a column with values; Spark alone evaluates the others."""
    found = []
    for each in filters:
        path: tuple[str, ...] = getattr(each, "attribute", ())
        column = columns.get(path[0]) if len(path) == 1 else None
        value: object = getattr(each, "value", None)
        name = type(each).__name__
        if column is None:
            continue
        if name == "In" and isinstance(value, (list, tuple)):
            found.append(Comparison(column, "in", tuple(value)))
        elif name in _KINDS:
            found.append(Comparison(column, _KINDS[name], (value,)))
    return found


def narrow_tags(plan: ReadPlan, narrowing: Narrowing) -> tuple[ReadPlan, Narrowing]:
    """Let the broker select the tags, unless it selects by something else."""
    wanted, given = narrowing.tags, plan.spec.subscription
    if wanted is None or given.kind != "TAG":
        return plan, replace(narrowing, tags=None)
    if not given.selects_all:
        expression = TagExpression.parse(given.expression)
        wanted = wanted if expression.matches_all else wanted & expression.tags
    narrowing = replace(narrowing, tags=wanted)
    if not wanted:
        return plan, narrowing
    subscription = Subscription(" || ".join(sorted(wanted)))
    return replace(plan, spec=replace(plan.spec, subscription=subscription)), narrowing


def spans_of_times(
    cluster: Cluster, queues: Sequence[PlannedQueue], times_ms: Span
) -> dict[QueueId, Span]:
    """Return between which offsets the messages of these times are, if that is certain."""
    starts: dict[QueueId, int] = {}
    ends: dict[QueueId, int] = {}
    if times_ms.start is not None:
        below = times_ms.start - CLOCK_STEP_MS_MAX
        found = _search(cluster, queues, below)
        # A search assumes that store times are sorted. They may not be, so its answer is checked.
        before = {queue: offset - 1 for queue, offset in found.items() if offset > 0}
        for queue, stored_ms in _store_times(cluster, before).items():
            if stored_ms < below:
                starts[queue] = found[queue]
    if times_ms.end is not None:
        above = times_ms.end + CLOCK_STEP_MS_MAX
        found = _search(cluster, queues, above)
        last = {known.queue: max(known.start, known.end) for known in queues}
        at = {queue: offset for queue, offset in found.items() if offset < last[queue]}
        for queue, stored_ms in _store_times(cluster, at).items():
            if stored_ms >= above:
                ends[queue] = found[queue]
    return {queue: Span(starts.get(queue), ends.get(queue)) for queue in starts.keys() | ends}


def _search(cluster: Cluster, queues: Sequence[PlannedQueue], time_ms: int) -> dict[QueueId, int]:
    times = {known.queue: max(0, time_ms) for known in queues}
    return split_answers(cluster.search_offsets(times, Boundary.LOWER) if times else {})[0]


def _store_times(cluster: Cluster, offsets: Mapping[QueueId, int]) -> dict[QueueId, int]:
    times = cluster.store_times_at(offsets) if offsets else {}
    return {queue: stored_ms for queue, stored_ms in times.items() if stored_ms is not None}


def check_query(query_id: str | None, pushed_ms: int) -> None:
    """Raise UnsupportedError if the query began after its plan's filters were pushed down."""
    if query_id is None:
        return
    known = uuid.UUID(query_id)
    if known.version == 7 and known.int >> 80 > pushed_ms:
        raise UnsupportedError(
            "PUSH_DOWN_REUSED",
            "pushDown=once: this query got the plan that an earlier one made for its filters, as "
            "Spark keeps one plan for each load(). Call load() again for every query (and leave "
            "pushDown out where a DataFrame is cached), or leave pushDown out",
        )
