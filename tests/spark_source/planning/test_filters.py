"""Filters narrow what is read and change nothing in the rows, as Spark evaluates all of them."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import StringType, StructType

from pyspark_rocketmq.errors import OptionError, UnsupportedError
from pyspark_rocketmq.options.definition import Use
from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.planning.batch import LATEST, PlannedQueue, plan_batch
from pyspark_rocketmq.planning.filters import (
    CLOCK_STEP_MS_MAX,
    Comparison,
    Narrowing,
    Span,
    is_plain_tag,
    late_topics_of,
    narrow_queues,
    narrowing_of,
)
from pyspark_rocketmq.planning.split import Split
from pyspark_rocketmq.read.filtered_reader import (
    check_query,
    comparable_columns,
    comparisons_of,
    narrow_tags,
    open_filtered_reader,
    spans_of_times,
)
from pyspark_rocketmq.read.plan import make_plan
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.offsets import Boundary

HOUR_MS = 3_600_000
FIRST = 100
"""The first offset of every queue: what was before is gone."""


@dataclass(frozen=True)
class Stored:
    queue: QueueId
    offset: int
    time_ms: int
    tag: str | None

    def value(self, column: str) -> object:
        at = datetime.datetime.fromtimestamp(self.time_ms / 1_000, datetime.timezone.utc)
        values: dict[str, object] = {
            "topic": self.queue.topic,
            "brokerName": self.queue.broker,
            "queueId": self.queue.index,
            "queueOffset": self.offset,
            "storeTimestamp": at,
            "tags": self.tag,
        }
        return values[column]


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def passes(message: Stored, filters: list[Comparison]) -> bool:
    """What Spark's own evaluation says."""
    for each in filters:
        value = message.value(each.column)
        if value is None:
            return False
        if each.kind == "in":
            if value not in each.values:
                return False
        elif not OPERATORS[each.kind](value, each.values[0]):
            return False
    return True


class StoredCluster:
    """Answers about store times as a broker does: by halving, as if they were sorted."""

    def __init__(self, held: Mapping[QueueId, list[Stored]]) -> None:
        self._held = held

    def search_offsets(
        self, times: Mapping[QueueId, int], boundary: Boundary
    ) -> dict[QueueId, int]:
        assert boundary is Boundary.LOWER
        return {queue: self._search(queue, time_ms) for queue, time_ms in times.items()}

    def _search(self, queue: QueueId, time_ms: int) -> int:
        low, high = 0, len(self._held[queue])
        while low < high:
            middle = (low + high) // 2
            if self._held[queue][middle].time_ms < time_ms:
                low = middle + 1
            else:
                high = middle
        return FIRST + low

    def store_times_at(self, offsets: Mapping[QueueId, int]) -> dict[QueueId, int | None]:
        found: dict[QueueId, int | None] = {}
        for queue, offset in offsets.items():
            here = [m.time_ms for m in self._held[queue] if m.offset >= offset]
            found[queue] = here[0] if here else None
        return found


QUEUES = [QueueId(t, b, i) for t in ("a", "b") for b in ("x", "y") for i in (0, 1)]
TAGS = st.sampled_from(["A", "B", "a|b", "with space", "", "*", None])
TIMES = st.integers(0, 12 * HOUR_MS)


def at(time_ms: int, micros: int = 0) -> datetime.datetime:
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return start + datetime.timedelta(milliseconds=time_ms, microseconds=micros)


@st.composite
def held(draw: st.DrawFn) -> dict[QueueId, list[Stored]]:
    """A few messages a queue. Clocks jump ahead at will, and back by less than the limit."""
    queues: dict[QueueId, list[Stored]] = {}
    for queue in draw(st.lists(st.sampled_from(QUEUES), min_size=1, max_size=3, unique=True)):
        latest, messages = 0, []
        for number in range(draw(st.integers(0, 8))):
            latest = max(latest, draw(TIMES))
            time_ms = max(0, latest - draw(st.integers(0, CLOCK_STEP_MS_MAX)))
            messages.append(Stored(queue, FIRST + number, time_ms, draw(TAGS)))
        queues[queue] = messages
    return queues


@st.composite
def comparison(draw: st.DrawFn, messages: list[Stored]) -> Comparison:
    """With the values of messages that are there, or with what is next to them."""
    column = draw(
        st.sampled_from(["queueOffset", "storeTimestamp", "tags", "queueId", "brokerName", "topic"])
    )

    def near() -> object:
        value = draw(st.sampled_from(messages)).value(column)
        if isinstance(value, int):
            return value + draw(st.integers(-1, 1))
        if isinstance(value, datetime.datetime):
            return value + draw(st.sampled_from([0, 1, -1])) * datetime.timedelta(microseconds=500)
        return "B" if value is None else value

    kind = draw(st.sampled_from(["in", ">", ">=", "<", "<="]))
    count = draw(st.integers(1, 3)) if kind == "in" else 1
    return Comparison(column, kind, tuple(near() for _ in range(count)))


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[QueueId, list[Stored]], list[Comparison]]:
    queues = draw(held())
    messages = [message for of_queue in queues.values() for message in of_queue]
    if not messages:
        return queues, []
    return queues, draw(st.lists(comparison(messages), min_size=1, max_size=2))


@settings(max_examples=400)
@given(cases(), st.integers(0, 8), st.booleans(), st.booleans())
def test_a_narrowed_plan_and_the_filters_give_the_same_rows(
    case: tuple[dict[QueueId, list[Stored]], list[Comparison]],
    planned_count: int,
    is_start_late: bool,
    is_end_late: bool,
) -> None:
    """Queues may have grown since the plan, which a late end sees with filters as without."""
    messages, filters = case
    planned = [
        PlannedQueue(q, FIRST, FIRST + min(planned_count, len(m)), is_start_late, is_end_late)
        for q, m in messages.items()
    ]
    narrowing = narrowing_of(filters)
    cluster = StoredCluster(messages)
    spans = spans_of_times(cluster, planned, narrowing.times_ms)  # type: ignore[arg-type]
    narrowed = narrow_queues(planned, narrowing, spans)

    def rows(queues: list[PlannedQueue], tags: frozenset[str] | None) -> set[Stored]:
        found = set()
        for known in queues:
            end = FIRST + len(messages[known.queue]) if known.is_end_late else known.end
            found |= {
                m
                for m in messages[known.queue]
                if known.start <= m.offset < end and (tags is None or m.tag in tags)
            }
        return {message for message in found if passes(message, filters)}

    assert rows(narrowed, narrowing.tags) == rows(planned, None)
    for known, before in zip(narrowed, planned, strict=True):
        assert known.queue == before.queue
        assert before.start <= known.start <= known.end <= max(before.start, before.end)


Q = QueueId("a", "x", 0)


@pytest.mark.parametrize(
    ("filters", "known", "wanted"),
    [
        ([(">=", 30), ("<", 50)], (0, 100), (30, 50)),
        ([(">", 30), ("<=", 50)], (0, 100), (31, 51)),
        ([("in", 7)], (0, 100), (7, 8)),
        ([(">=", 30)], (50, 100), (50, 100)),
        ([("<", 30)], (50, 100), (50, 50)),
        ([(">=", 300)], (50, 100), (100, 100)),
    ],
)
def test_offsets_cut_a_queue(
    filters: list[tuple[str, int]], known: tuple[int, int], wanted: tuple[int, int]
) -> None:
    narrowing = narrowing_of(Comparison("queueOffset", kind, (n,)) for kind, n in filters)
    assert narrow_queues([PlannedQueue(Q, *known)], narrowing, {}) == [PlannedQueue(Q, *wanted)]


def test_an_end_that_is_open_stays_open_behind_what_is_known() -> None:
    known = PlannedQueue(Q, 50, 100, is_start_late=True, is_end_late=True)
    above = narrowing_of([Comparison("queueOffset", ">=", (300,))])
    # Not 300: a queue that ends before it has lost nothing.
    assert narrow_queues([known], above, {}) == [PlannedQueue(Q, 100, 100, is_end_late=True)]
    below = narrowing_of([Comparison("queueOffset", "<", (80,))])
    assert narrow_queues([known], below, {}) == [PlannedQueue(Q, 50, 80, is_start_late=True)]


def test_a_queue_left_out_is_not_taken_for_one_that_came_later() -> None:
    other = QueueId("a", "x", 1)
    planned = [PlannedQueue(queue, 0, 10, is_end_late=True) for queue in (Q, other)]
    narrowing = narrowing_of([Comparison("queueId", "in", (0,))])
    tasks = plan_batch(narrow_queues(planned, narrowing, {}), Split(), {"a"})
    assert [[(s.queue, s.start, s.end) for s in task.slices] for task in tasks] == [
        [(Q, 0, LATEST)]
    ]
    assert tasks[0].planned_queues == (Q, other)
    assert late_topics_of({"a", "b"}, Narrowing(topics=frozenset("a"))) == {"a"}


@pytest.mark.parametrize("tag", ["", "*", "a|b", "a b", " a", "a\n", "ä", 7, None])
def test_a_tag_that_no_expression_can_name_is_left_to_spark(tag: object) -> None:
    assert not is_plain_tag(tag)
    assert narrowing_of([Comparison("tags", "in", ("A", tag))]).tags is None


@given(st.sets(st.text(st.characters(codec="ascii")).filter(is_plain_tag), min_size=1))
def test_tags_that_are_pushed_come_back_from_their_expression(tags: set[str]) -> None:
    assert TagExpression.parse(" || ".join(sorted(tags))).tags == tags


def plan_of(**options: str) -> tuple[object, Narrowing]:
    given = {"nameServer": "h:1", "subscribe": "a", "pushDown": "once", **options}
    parsed = read_options(given, Use.BATCH)
    plan = make_plan(parsed, StructType().add("tags", "string"))
    wanted = narrowing_of([Comparison("tags", "in", ("A", "B"))])
    narrowed, narrowing = narrow_tags(plan, wanted)
    return narrowed.spec.subscription.expression, narrowing


def test_pushed_tags_go_with_those_of_the_options() -> None:
    assert plan_of() == ("A || B", Narrowing(tags=frozenset({"A", "B"})))
    assert plan_of(tags="B || C") == ("B", Narrowing(tags=frozenset({"B"})))
    assert plan_of(tags="C") == ("C", Narrowing(tags=frozenset()))
    assert plan_of(sql="x > 1") == ("x > 1", Narrowing())
    known = PlannedQueue(Q, 0, 10, is_end_late=True)
    nothing = narrow_queues([known], Narrowing(tags=frozenset()), {})
    assert nothing == [PlannedQueue(Q, 0, 0)]


def test_a_search_that_hit_upon_a_set_back_clock_narrows_nothing() -> None:
    """Its neighbour's time proves it wrong, whatever the search made of times out of order."""
    times = [10 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS, 6 * HOUR_MS]
    stored = [Stored(Q, FIRST + n, time_ms, None) for n, time_ms in enumerate(times)]

    class Wrong(StoredCluster):
        def _search(self, *_: object) -> int:
            return FIRST + 3

    queues = [PlannedQueue(Q, FIRST, FIRST + 4)]
    span = Span(8 * HOUR_MS, 8 * HOUR_MS)
    assert spans_of_times(Wrong({Q: stored}), queues, span) == {}  # type: ignore[arg-type]


def test_filters_are_taken_from_what_spark_hands_over() -> None:
    filters: list[Filter] = [
        EqualTo(("tags",), "A"),
        In(("topic",), ["a", "b"]),  # type: ignore[arg-type]  # What Spark does.
        GreaterThan(("queueOffset",), 5),
        LessThanOrEqual(("storeTimestamp",), at(7)),
        IsNotNull(("tags",)),
        Not(EqualTo(("tags",), "B")),
        StringStartsWith(("tags",), "A"),
        EqualTo(("properties", "x"), "A"),
        EqualTo(("body",), b"A"),
    ]
    columns = {name: name for name in ("tags", "topic", "queueOffset", "storeTimestamp", "body")}
    narrowing = narrowing_of(comparisons_of(filters, columns))
    assert narrowing == Narrowing(
        topics=frozenset("ab"),
        tags=frozenset("A"),
        offsets=Span(6),
        times_ms=Span(None, 8),
    )


def test_fields_of_bodies_are_not_taken_for_columns_of_messages() -> None:
    schema = StructType().add("tags", "string").add("__tags", "string").add("__offset", "long")
    typed = comparable_columns(schema, is_typed=True)
    assert typed == {"__tags": "tags", "__offset": "queueOffset"}
    plain = StructType().add("tags", StringType("UTF8_LCASE")).add("topic", "string")
    assert comparable_columns(plain, is_typed=False) == {"topic": "topic"}


def test_a_spark_that_pushes_no_filters_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # As on Spark 4.0, whose readers have no such method.
    monkeypatch.delattr(DataSourceReader, "pushFilters", raising=False)
    options = read_options({"nameServer": "h:1", "subscribe": "orders"})
    schema = StructType().add("tags", "string")
    plan = make_plan(options, schema)
    with pytest.raises(UnsupportedError, match=r"^\[ROCKETMQ_UNSUPPORTED\.PUSH_DOWN\] .*Spark 4.1"):
        open_filtered_reader(options, plan, schema)


# Of version 7: the first 48 bits are a time.
def query_id(time_ms: int, version: int = 7) -> str:
    digits = f"{time_ms:012x}{version:x}000b000000000000000"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def test_a_plan_made_before_its_query_is_refused() -> None:
    check_query(query_id(1_000), 1_000)
    check_query(query_id(2_000, version=4), 1_000)
    check_query(None, 1_000)
    expected = r"^\[ROCKETMQ_UNSUPPORTED\.PUSH_DOWN_REUSED\] .*load\(\) again"
    with pytest.raises(UnsupportedError, match=expected):
        check_query(query_id(1_001), 1_000)


def test_filters_and_look_ups_exclude_each_other() -> None:
    given = {"nameServer": "h:1", "subscribe": "a", "pushDown": "once", "messageKey": "k"}
    with pytest.raises(OptionError, match="'pushDown' has no meaning beside 'messageKey'"):
        read_options(given, Use.BATCH)
