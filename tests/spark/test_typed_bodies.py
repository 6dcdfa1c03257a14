"""Fields of bodies as columns, beside Spark's own functions over the same messages."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from rocketmq_wire.model import QueueId
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.messages import SendBatch
from support.frames import assert_rows
from support.loader import Loader

FIELDS = (
    "order_id LONG, amount DOUBLE, paid BOOLEAN, note STRING, lines ARRAY<INT>, "
    "to STRUCT<city: STRING, zip: INT>"
)


def send(loader: Loader, queue: QueueId, bodies: list[bytes]) -> None:
    properties = encode_properties({"TAGS": "new"})
    entries = [BatchEntry(0, body, properties) for body in bodies]
    request = SendBatch("typed", queue, int(time.time() * 1_000), encode_batch(entries))
    loader.cluster.transport.call(request, broker=queue.broker, timeout_ms=10_000)
    loader.await_end(queue, len(bodies))


def test_fields_of_bodies_are_what_from_json_makes_of_them(
    loader: Loader, topic: str, read: Callable[..., DataFrame]
) -> None:
    (queue,) = loader.create(topic, 1)
    bodies = [
        json.dumps(
            {
                "order_id": row,
                "amount": row / 7,
                "paid": row % 2 == 0,
                "note": f"größer\n{row}" if row % 5 else None,
                "lines": list(range(row % 4)),
                "to": {"city": "Ulm", "zip": 89000 + row, "more": [1, {}]},
                "unread": {"a": [row]},
            },
            ensure_ascii=row % 3 == 0,
            indent=1 if row % 4 == 0 else None,
        ).encode()
        for row in range(60)
    ]
    torn = (7, 8)
    bodies[7] = b'{"order_id": 7, "note": "torn'
    bodies[8] = b'", "order_id": 8}'
    send(loader, queue, bodies)
    schema = f"__tags STRING, {FIELDS}, _corrupt_record STRING, __offset LONG"
    typed = read(schema=schema, bodyFormat="json")
    spark_made = read().selectExpr(
        "tags AS __tags",
        f"from_json(string(body), '{FIELDS}') AS fields",
        "CAST(NULL AS STRING) AS _corrupt_record",
        "queueOffset AS __offset",
    )
    good = f"__offset NOT IN ({', '.join(map(str, torn))})"
    wanted = spark_made.select("__tags", "fields.*", "_corrupt_record", "__offset").where(good)
    assert_df_equality(typed.where(good), wanted, ignore_row_order=True)
    for row in typed.where(f"NOT {good}").collect():
        filled = {name: value for name, value in row.asDict().items() if value is not None}
        assert filled == {
            "__tags": "new",
            "_corrupt_record": bodies[row["__offset"]].decode(),
            "__offset": row["__offset"],
        }
    with pytest.raises(PySparkException, match=r"ROCKETMQ_BAD_BODY.*offset=7"):
        read(schema="order_id LONG", bodyFormat="json", mode="FAILFAST").collect()


def test_the_lines_that_the_refusal_of_csv_names_read_csv(
    loader: Loader, topic: str, read: Callable[..., DataFrame]
) -> None:
    (queue,) = loader.create(topic, 1)
    send(loader, queue, [b'7,"Ulm, Donau"', b"8,"])
    with pytest.raises(
        PySparkException, match=r"ROCKETMQ_OPTION\.INVALID.*'bodyFormat'"
    ) as refused:
        read(schema="order_id LONG", bodyFormat="csv").collect()
    lines = re.search(r"(from pyspark\S* import .*?); (df\..*?); ", str(refused.value))
    assert lines is not None
    schema = "order_id LONG, note STRING"
    names = {"df": read(), "schema_ddl": schema}
    exec(lines[1], names)
    found: DataFrame = eval(lines[2], names)
    assert_rows(found, [(7, "Ulm, Donau"), (8, None)], schema)
