"""Fields of bodies as columns: what the plan says, and what batches become."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_rocketmq.errors import BadBodyError, OptionError, SchemaError
from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.read import task as partition_read
from pyspark_rocketmq.read.plan import make_plan
from pyspark_rocketmq.read.task import read_ranges
from pyspark_rocketmq.read.typed_bodies import TypedBatches, TypedPlan, typed_plan
from pyspark_rocketmq.source import RocketMQDataSource
from rocketmq_wire.model import OffsetRange, QueueId
from support.fake_cluster import FakeWorld

QUEUE = QueueId("orders", "broker-a", 3)
OFFSET = pa.field("__offset", pa.int64())
BAD = pa.field("_corrupt_record", pa.string())
ORDER = pa.field("order_id", pa.int64())
BODIES = [b'{"order_id":1}', b'{"order_id":2', b'{"order_id":"3"}', b'{"order_id":4}', b"\xff"]


def plan(*fields: pa.Field, **options: str) -> TypedPlan:
    raw = {"nameServer": "h:1", "subscribe": "orders", "bodyFormat": "json", **options}
    found = typed_plan(read_options(raw), pa.schema(list(fields)))
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
    text = r"^\[ROCKETMQ_BAD_BODY\] .*orders.*offset=8: not one JSON object"
    with pytest.raises(BadBodyError, match=text) as caught:
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
        (
            [pa.field("o", pa.struct([("d", pa.date32())]))],
            OptionError,
            "'o.d' as DATE: declare a STRING .*to_date",
        ),
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


def test_a_field_with_the_name_of_a_message_column_is_asked_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan(ORDER, OFFSET)
    assert caplog.messages == []
    plan(ORDER, pa.field("topic", pa.string()))
    assert "'topic' is read from the bodies; did you mean '__topic'" in caplog.text


def test_names_that_differ_in_case_alone_are_two_fields() -> None:
    other = pa.field("ORDER_ID", pa.int64())
    assert rows(plan(ORDER, other), [b'{"order_id":1,"ORDER_ID":2}']) == [
        {"order_id": 1, "ORDER_ID": 2}
    ]


@pytest.mark.parametrize("other", ["avro", "protobuf"])
def test_formats_without_a_reader_here_are_left_to_spark(other: str) -> None:
    with pytest.raises(OptionError, match=f"from_{other}"):
        plan(ORDER, bodyFormat=other)


def test_csv_bodies_are_left_to_spark_with_the_lines_that_read_them() -> None:
    with pytest.raises(OptionError, match=r"bodyFormat' must be json.*; df\.select\(from_csv\("):
        plan(ORDER, bodyFormat="CSV")
    with pytest.raises(OptionError, match="must be json, got 'xml'"):
        plan(ORDER, bodyFormat="xml")


@pytest.mark.parametrize("name", ["delimiter", "sep", "nullValue"])
def test_options_of_csv_are_unknown_and_left_to_from_csv(name: str) -> None:
    with pytest.raises(OptionError, match=f"option '{name}' is unknown: Spark's from_csv takes it"):
        plan(ORDER, **{name: ";"})


def test_what_belongs_to_typed_bodies_alone_is_refused_without_them() -> None:
    raw = {"nameServer": "h:1", "subscribe": "orders", "bodyMode": "failfast"}
    with pytest.raises(OptionError, match="without bodyFormat"):
        typed_plan(read_options(raw), pa.schema([OFFSET]))
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
        for _, cluster in clusters:
            cluster.close()


def test_messages_left_out_for_their_bodies_are_no_losses(world: FakeWorld) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 20)
    raw = {"nameServer": "h:1", "subscribe": "orders", "bodyFormat": "json"}
    schema = StructType([StructField("order_id", LongType()), StructField("__offset", LongType())])
    ranges = (OffsetRange(queue, 0, 20),)
    kept = make_plan(read_options(raw), schema)
    assert pickle.loads(pickle.dumps(kept)) == kept
    assert sum(batch.num_rows for batch in read_ranges(kept, ranges)) == 20
    dropped = make_plan(read_options({**raw, "bodyMode": "dropmalformed"}), schema)
    assert sum(batch.num_rows for batch in read_ranges(dropped, ranges)) == 0
    failing = make_plan(read_options({**raw, "bodyMode": "failfast"}), schema)
    with pytest.raises(BadBodyError, match="offset=0"):
        list(read_ranges(failing, ranges))
