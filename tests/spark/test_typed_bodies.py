"""Fields of bodies as columns, beside Spark's own functions over the same messages."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rocketmq_arrow.csv_bodies import CsvBodies
from rocketmq_broker_sim import Broker
from rocketmq_wire.batch import BatchEntry, encode_batch
from rocketmq_wire.model import QueueId
from rocketmq_wire.properties import encode_properties
from rocketmq_wire.requests import SendBatch
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
    bodies[7] = b'{"order_id": 7, "note": "torn'
    bodies[8] = b'", "order_id": 8}'
    send(loader, queue, bodies)
    schema = f"__tags STRING, {FIELDS}, _corrupt_record STRING, __offset LONG"
    typed = read(schema=schema, bodyFormat="json").orderBy("__offset")
    ours = typed.collect()
    spark_made = (
        read()
        .selectExpr("queueOffset", f"from_json(string(body), '{FIELDS}') AS fields")
        .orderBy("queueOffset")
    )
    for row, wanted in zip(ours, spark_made.collect(), strict=True):
        assert (row["__offset"], row["__tags"]) == (wanted["queueOffset"], "new")
        is_bad = row["__offset"] in (7, 8)
        assert row["_corrupt_record"] == (bodies[row["__offset"]].decode() if is_bad else None)
        names = wanted["fields"].asDict()
        assert {name: row[name] for name in names} == (
            dict.fromkeys(names) if is_bad else wanted["fields"].asDict()
        )
    with pytest.raises(PySparkException, match=r"ROCKETMQ_BAD_BODY.*offset=7"):
        read(schema="order_id LONG", bodyFormat="json", mode="FAILFAST").collect()


def test_lines_of_csv_are_what_from_csv_makes_of_them(
    loader: Loader, topic: str, read: Callable[..., DataFrame]
) -> None:
    (queue,) = loader.create(topic, 1)
    bodies = [
        f'{row},{row / 7},{str(row % 2 == 0).lower()},"größer, {row}"'.encode() for row in range(40)
    ]
    bodies[3] = b"3,,,"
    bodies[7] = b"7,torn"
    bodies[8] = b"eight,1.5,true,a"
    send(loader, queue, bodies)
    fields = "order_id LONG, amount DOUBLE, paid BOOLEAN, note STRING"
    typed = read(schema=f"{fields}, _corrupt_record STRING, __offset LONG", bodyFormat="csv")
    ours = typed.orderBy("__offset").collect()
    spark_made = (
        read()
        .selectExpr("queueOffset", f"from_csv(string(body), '{fields}') AS fields")
        .orderBy("queueOffset")
    )
    for row, wanted in zip(ours, spark_made.collect(), strict=True):
        names = wanted["fields"].asDict()
        is_bad = row["__offset"] in (7, 8)
        assert row["_corrupt_record"] == (bodies[row["__offset"]].decode() if is_bad else None)
        assert {name: row[name] for name in names} == (dict.fromkeys(names) if is_bad else names)


TWO = "a STRING, b STRING"
PIECES = ['"', "\\", '\\"', "\\\\", ",", "a", " ", "\t", '"a"', "1", "ö"]


def odd_bodies(count: int) -> list[str]:
    """Bodies of two fields and others, some in order and some not, none with doubled quotes."""
    dice = random.Random(11)

    def field() -> str:
        text = "".join(dice.choices(PIECES, k=dice.randrange(5)))
        if dice.random() < 0.5:
            inner = "".join(dice.choices(["a", "\\", '\\"', "\\\\", ",", "\n", "ö", " "], k=4))
            text = f'"{inner}"{dice.choice(["", "", "", " ", "x"])}'
        return text

    bodies = [",".join(field() for _ in range(dice.choice([1, 2, 2, 2, 3]))) for _ in range(count)]
    return [body for body in dict.fromkeys(bodies) if body and '""' not in body]


def test_odd_quotes_and_backslashes_are_read_as_by_from_csv_or_are_bad(
    loader: Loader, topic: str, read: Callable[..., DataFrame]
) -> None:
    (queue,) = loader.create(topic, 1)
    bodies = odd_bodies(3_000)
    send(loader, queue, [body.encode() for body in bodies])
    ours = read(schema=f"{TWO}, _corrupt_record STRING, __offset LONG", bodyFormat="csv")
    how = "map('columnNameOfCorruptRecord', '_corrupt_record')"
    spark_made = read().selectExpr(
        "queueOffset", f"from_csv(string(body), '{TWO}, _corrupt_record STRING', {how}) AS fields"
    )
    good = 0
    for row, theirs in zip(
        ours.orderBy("__offset").collect(),
        spark_made.orderBy("queueOffset").collect(),
        strict=True,
    ):
        body = bodies[row["__offset"]]
        if row["_corrupt_record"] is None:
            good += 1
            assert (row["a"], row["b"], None) == tuple(theirs["fields"]), body
        else:
            # Out of order for us; what from_csv makes of it is its own affair.
            assert row["_corrupt_record"] == body
            assert (row["a"], row["b"]) == (None, None), body
    assert good > len(bodies) / 4


def test_what_to_csv_writes_is_what_is_read(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str, read: Callable[..., DataFrame]
) -> None:
    loader.create(topic, 1)
    dice = random.Random(12)
    texts = ["".join(dice.choices(['"', "\\", ",", "a", "\n", "ö", "1"], k=5)) for _ in range(500)]
    # Without quotes a line break would not be written back, and to_csv takes off outer ones.
    texts = sorted({text.strip() for text in texts if '"' in text or "," in text})
    rows = [(number, text) for number, text in enumerate([*texts, "", "a b", None])]
    frame = spark.createDataFrame(rows, "n INT, s STRING").selectExpr(
        "to_csv(struct(n, s)) AS body"
    )
    frame.write.format("rocketmq").options(nameServer=broker.name_server, topic=topic).mode(
        "append"
    ).save()
    found = read(schema="n INT, s STRING", bodyFormat="csv", mode="FAILFAST").orderBy("n")
    assert [tuple(row) for row in found.collect()] == rows


@pytest.mark.parametrize(
    ("body", "theirs", "ours"),
    [
        ('1,"a""b"', ("1", '"a""b"'), ("1", 'a"b')),
        ('1,""', ("1", None), ("1", "")),
        ("1,a\r\n", ("1", "a\r\n"), ("1", "a")),
        ('1,"a', ("1", "a"), None),
        ('1,"a"b', ("1", '"a"b'), None),
        ('1,"a""b\\"c"', ("1", '"a""b\\"c"'), None),
        ("1,a\nb", ("1", "a\nb"), None),
    ],
)
def test_the_page_says_where_csv_is_read_otherwise_than_by_from_csv(
    spark: SparkSession, body: str, theirs: tuple[str, str], ours: tuple[str, str] | None
) -> None:
    frame = spark.createDataFrame([(body,)], "body STRING")
    assert tuple(frame.selectExpr(f"from_csv(body, '{TWO}') AS f").first().f) == theirs
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    read = CsvBodies(schema, "5f0c6d1e2a3b4c5d").read(pa.array([body.encode()], pa.binary()))
    found = tuple(column[0].as_py() for column in read.columns)
    assert (None if read.bad else found) == ours
