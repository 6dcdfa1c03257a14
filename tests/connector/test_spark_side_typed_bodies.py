"""Fields of bodies as columns: what the plan says, and what batches become."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_rocketmq import partition_read
from pyspark_rocketmq.errors import BadBodyError, OptionError, SchemaError
from pyspark_rocketmq.options import parse_options
from pyspark_rocketmq.partition_read import read_ranges
from pyspark_rocketmq.read_plan import make_plan
from pyspark_rocketmq.source import RocketMQDataSource
from pyspark_rocketmq.typed_bodies import TypedBatches, TypedPlan, typed_plan
from rocketmq_wire.model import OffsetRange, QueueId
from support.fake_cluster import FakeWorld

QUEUE = QueueId("orders", "broker-a", 3)
OFFSET = pa.field("__offset", pa.int64())
BAD = pa.field("_corrupt_record", pa.string())
ORDER = pa.field("order_id", pa.int64())
BODIES = [b'{"order_id":1}', b'{"order_id":2', b'{"order_id":"3"}', b'{"order_id":4}', b"\xff"]


def plan(*fields: pa.Field, **options: str) -> TypedPlan:
    raw = {"nameServer": "h:1", "subscribe": "orders", "bodyFormat": "json", **options}
    found = typed_plan(parse_options(raw), pa.schema(list(fields)))
    assert found is not None
    return found


def rows(wanted: TypedPlan, bodies: list[bytes] = BODIES) -> list[dict[str, Any]]:
    columns: dict[str, list[Any]] = {
        "queueOffset": list(range(7, 7 + len(bodies))),
        "body": bodies,
        "tags": ["t"] * len(bodies),
    }
    batch = pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in wanted.messages],
        schema=wanted.messages,
    )
    made = TypedBatches(wanted, "5f0c6d1e2a3b4c5d").convert(QUEUE, batch)
    assert made.schema == wanted.output
    made.validate(full=True)
    found: list[dict[str, Any]] = made.to_pylist()
    return found


def test_columns_come_in_the_order_of_the_schema_from_bodies_and_messages() -> None:
    wanted = plan(pa.field("__tags", pa.string()), ORDER, OFFSET)
    assert rows(wanted, [b'{"order_id":1,"more":[]}', b"{}"]) == [
        {"__tags": "t", "order_id": 1, "__offset": 7},
        {"__tags": "t", "order_id": None, "__offset": 8},
    ]


def test_a_bad_body_gives_nulls_and_its_text_where_a_column_takes_it() -> None:
    assert rows(plan(ORDER, OFFSET)) == [
        {"order_id": number, "__offset": offset}
        for number, offset in zip([1, None, None, 4, None], range(7, 12), strict=True)
    ]
    found = rows(plan(ORDER, BAD))
    texts = [row["_corrupt_record"] for row in found]
    assert texts == [None, '{"order_id":2', '{"order_id":"3"}', None, "\ufffd"]
    other = plan(ORDER, pa.field("bad", pa.string()), columnNameOfCorruptRecord="bad")
    assert [row["bad"] for row in rows(other)] == texts


def test_dropmalformed_leaves_bad_bodies_out() -> None:
    wanted = plan(ORDER, OFFSET, bodyMode="DROPMALFORMED")
    assert rows(wanted) == [{"order_id": 1, "__offset": 7}, {"order_id": 4, "__offset": 10}]


def test_failfast_names_the_first_bad_message_and_why() -> None:
    told = r"^\[ROCKETMQ_BAD_BODY\] .*orders.*offset=8: not one JSON object"
    with pytest.raises(BadBodyError, match=told) as caught:
        rows(plan(ORDER, mode="failfast"))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ([ORDER, pa.field("__ofset", pa.int64())], SchemaError, "did you mean '__offset'"),
        ([ORDER, pa.field("__offset", pa.string())], SchemaError, "queueOffset"),
        ([OFFSET], OptionError, "at least one field"),
        ([pa.field("at", pa.timestamp("us", tz="UTC"))], OptionError, "to_timestamp"),
        ([pa.field("amount", pa.decimal128(9, 2))], OptionError, "from_json"),
        ([pa.field("o", pa.struct([("d", pa.date32())]))], OptionError, "'o.d'"),
        ([pa.field("order_id", pa.int64(), nullable=False)], OptionError, "null"),
        ([ORDER, pa.field("_corrupt_record", pa.int64())], OptionError, "STRING"),
        ([ORDER, pa.field("order_id", pa.string())], OptionError, "names 'order_id' twice: give"),
        ([ORDER, OFFSET, OFFSET], OptionError, "names '__offset' twice: give"),
        ([ORDER, BAD, BAD], OptionError, "names '_corrupt_record' twice: give"),
        ([pa.field("o", pa.struct([ORDER, ORDER]))], OptionError, "'o.order_id' twice"),
        (
            [pa.field("o", pa.list_(pa.struct([("p", pa.struct([ORDER, ORDER]))])))],
            OptionError,
            r"'o\[\]\.p\.order_id' twice",
        ),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused_with_what_helps(
    fields: list[pa.Field], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        plan(*fields)


@pytest.mark.parametrize("name", ["__tags", "__offset", "__queueOffset", "__TAGS"])
@pytest.mark.parametrize("fields", [[ORDER], [ORDER, pa.field("__tags", pa.string())]])
def test_the_text_of_bad_bodies_takes_no_column_of_messages(
    name: str, fields: list[pa.Field]
) -> None:
    with pytest.raises(OptionError, match=f"{name} is a column of messages: take another name"):
        plan(*fields, columnNameOfCorruptRecord=name)


def test_names_that_differ_in_case_alone_are_two_fields() -> None:
    other = pa.field("ORDER_ID", pa.int64())
    assert rows(plan(ORDER, other), [b'{"order_id":1,"ORDER_ID":2}']) == [
        {"order_id": 1, "ORDER_ID": 2}
    ]


def test_a_csv_column_that_is_named_twice_is_refused() -> None:
    with pytest.raises(OptionError, match="'order_id' twice"):
        plan(ORDER, ORDER, bodyFormat="csv")


@pytest.mark.parametrize("other", ["avro", "protobuf"])
def test_formats_without_a_reader_here_are_left_to_spark(other: str) -> None:
    with pytest.raises(OptionError, match=f"from_{other}"):
        plan(ORDER, bodyFormat=other)


def test_csv_bodies_are_read_by_place_with_the_modes_of_json() -> None:
    note = pa.field("note", pa.string())
    bodies = [b"1;a", b'2;"a;b"', b'3;"a', b"4;NULL", b"", b"5;a;b"]
    how = {"bodyFormat": "csv", "sep": ";", "nullValue": "NULL"}
    assert rows(plan(OFFSET, ORDER, note, BAD, **how), bodies) == [
        {"__offset": 7, "order_id": 1, "note": "a", "_corrupt_record": None},
        {"__offset": 8, "order_id": 2, "note": "a;b", "_corrupt_record": None},
        {"__offset": 9, "order_id": None, "note": None, "_corrupt_record": '3;"a'},
        {"__offset": 10, "order_id": 4, "note": None, "_corrupt_record": None},
        {"__offset": 11, "order_id": None, "note": None, "_corrupt_record": ""},
        {"__offset": 12, "order_id": None, "note": None, "_corrupt_record": "5;a;b"},
    ]
    kept = rows(plan(OFFSET, ORDER, note, bodyMode="dropmalformed", **how), bodies)
    assert [row["__offset"] for row in kept] == [7, 8, 10]
    with pytest.raises(BadBodyError, match="offset=9: not one line"):
        rows(plan(ORDER, note, bodyMode="failfast", **how), bodies)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bodyFormat": "json", "delimiter": ";"}, "bodyFormat=csv"),
        ({"bodyFormat": "csv", "delimiter": ";;"}, "one ASCII character"),
        ({"bodyFormat": "csv", "delimiter": '"'}, "one ASCII character"),
        ({"bodyFormat": "csv", "delimiter": "1"}, "no letter, digit"),
        ({"bodyFormat": "csv", "delimiter": "\\"}, "backslash"),
        ({"bodyFormat": "csv", "nullValue": "a,b"}, "delimiter"),
        ({"bodyFormat": "csv", "nullValue": 'a"'}, "quotes"),
        ({"bodyFormat": "csv", "delimeter": ";"}, "did you mean 'delimiter'"),
    ],
)
def test_options_of_csv_are_checked(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        plan(ORDER, **options)


def test_csv_has_no_nested_fields() -> None:
    with pytest.raises(OptionError, match="from_csv"):
        plan(pa.field("items", pa.list_(pa.int32())), bodyFormat="csv")


def test_what_belongs_to_typed_bodies_alone_is_refused_without_them() -> None:
    raw = {"nameServer": "h:1", "subscribe": "orders", "bodyMode": "failfast"}
    with pytest.raises(OptionError, match="without bodyFormat"):
        typed_plan(parse_options(raw), pa.schema([OFFSET]))
    source = RocketMQDataSource({**raw, "bodyFormat": "json"})
    with pytest.raises(OptionError, match=r"needs \.schema"):
        source.schema()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWorld]:
    world = FakeWorld()
    monkeypatch.setattr(partition_read, "open_cluster", world.open_cluster)
    monkeypatch.setattr(partition_read, "_idle", {})
    yield world
    for clusters in partition_read._idle.values():
        for cluster in clusters:
            cluster.close()


def test_messages_left_out_for_their_bodies_are_no_losses(world: FakeWorld) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 20)
    raw = {"nameServer": "h:1", "subscribe": "orders", "bodyFormat": "json"}
    schema = StructType([StructField("order_id", LongType()), StructField("__offset", LongType())])
    ranges = (OffsetRange(queue, 0, 20),)
    kept = make_plan(parse_options(raw), schema)
    assert pickle.loads(pickle.dumps(kept)) == kept
    assert sum(batch.num_rows for batch in read_ranges(kept, ranges)) == 20
    dropped = make_plan(parse_options({**raw, "bodyMode": "dropmalformed"}), schema)
    assert sum(batch.num_rows for batch in read_ranges(dropped, ranges)) == 0
    failing = make_plan(parse_options({**raw, "bodyMode": "failfast"}), schema)
    with pytest.raises(BadBodyError, match="offset=0"):
        list(read_ranges(failing, ranges))
