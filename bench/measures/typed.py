"""Fields of bodies read as columns, beside Spark's own functions over the same messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame

from bench.bed import TRANSPORTS, Bed
from bench.load import Bodies, load_topic
from bench.machine import Figures, alternate, median_seconds, rates
from bench.registry import measurement

_SHARE_OF_MESSAGES = 2
_BODY_SIZE = 100
# One of this many bodies is bad, in the runs with bad bodies.
_BAD_EVERY = 100
_BAD_COLUMN = "_corrupt_record"


@dataclass(frozen=True)
class _Case:
    """Bodies, and what both sides are asked for."""

    fields: str
    bodies: Bodies
    totals: tuple[str, ...]
    topic: str
    has_bad: bool = False


@measurement("typed", "JSON bodies as columns, bodyFormat against from_json")
def typed(bed: Bed) -> Iterator[Figures]:
    for case in _cases():
        yield from _race(bed, case)


def _race(bed: Bed, case: _Case) -> Iterator[Figures]:
    topic, fields = case.topic, case.fields
    how = bad = ""
    if case.has_bad:
        # Both sides are to hand on what they cannot read.
        fields += f", {_BAD_COLUMN} STRING"
        how = f", map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_BAD_COLUMN}')"
        bad = f", 1 in {_BAD_EVERY} bad"
    function, name = f"from_json{bad}", f"bodyFormat=json{bad}"
    rows = bed.scale.messages(_BODY_SIZE) // _SHARE_OF_MESSAGES
    load_topic(bed.settings("endpoints"), topic, rows, _BODY_SIZE, case.bodies)
    for transport in TRANSPORTS:
        options = bed.options(transport, topic)
        reader = bed.spark.read.format("rocketmq").options(**options)
        body = reader.schema("body BINARY").load()
        # The cast would be one more copy: from_json takes text alone.
        text = body.selectExpr(f"from_json(string(body), '{fields}'{how}) AS f").select("f.*")
        columns = reader.schema(fields).option("bodyFormat", "json").load()
        totals = [frame.selectExpr(*case.totals).first() for frame in (text, columns)]
        assert totals[0] == totals[1], f"{totals[0]} by {function}, {totals[1]} by bodyFormat"
        measured = alternate({function: _drain(text), name: _drain(columns)}, runs=bed.scale.runs)
        spark = median_seconds(measured[function])
        for what, runs in measured.items():
            figures = {"what": what, "transport": transport, "rows": rows, **rates(rows, runs)}
            if what != function:
                figures["times"] = round(spark / median_seconds(runs), 2)
            yield figures


_TOTALS = (
    "count(*) AS n",
    "sum(order_id) AS ids",
    "sum(cast(amount * 100 AS LONG)) AS cents",
    "count_if(paid) AS paid",
    "max(customer) AS customer",
    "sum(size(items)) AS items",
)
_FIELDS = "order_id LONG, customer STRING, amount DOUBLE, paid BOOLEAN, items ARRAY<INT>"


def _cases() -> Iterator[_Case]:
    case = _Case(_FIELDS, orders, _TOTALS, "orders-json")
    yield case
    yield replace(
        case,
        bodies=_some_bad(case.bodies),
        totals=(
            f"count({_BAD_COLUMN}) AS bad",
            f"sum(if({_BAD_COLUMN} IS NULL, order_id, 0)) AS ids",
        ),
        topic=f"{case.topic}-bad",
        has_bad=True,
    )


def _some_bad(bodies: Bodies) -> Bodies:
    """The same, but that some have a text for their order's number."""

    def some_bad(first: int, count: int, size: int) -> pa.Array:
        made = bodies(first, count, size).to_pylist()
        for row in range(-first % _BAD_EVERY, count, _BAD_EVERY):
            number = b"%d" % (first + row)
            made[row] = made[row].replace(number, b'"no number"', 1)
        return pa.array(made, pa.binary())

    return some_bad


def orders(first: int, count: int, size: int) -> pa.Array:
    """Orders as people write them, of about this size."""
    bodies = []
    for number in range(first, first + count):
        order: dict[str, object] = {
            "order_id": number,
            "customer": f"customer-{number % 9973}",
            "amount": number % 100_000 / 100,
            "paid": number % 3 == 0,
            "items": [number % 7, number % 11],
        }
        order["note"] = "x" * max(0, size - len(json.dumps(order)) - 12)
        bodies.append(json.dumps(order).encode())
    return pa.array(bodies, pa.binary())


def _drain(frame: DataFrame) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()
