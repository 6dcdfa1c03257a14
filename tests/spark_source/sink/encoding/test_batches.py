"""Rows become requests: the right queue, in order, cut by size, stamped; without a broker."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DataType, LongType, MapType, StringType, StructField, StructType

from pyspark_rocketmq.errors import NothingWrittenError, SinkRowError, SinkSchemaError
from pyspark_rocketmq.sink.encoding.batches import SinkRequests, cut_batches, digests
from pyspark_rocketmq.sink.encoding.plan import SinkLayout, WriteId, sink_columns
from pyspark_rocketmq.sink.encoding.queue_choice import ANY, assign_queues
from pyspark_rocketmq.sink.task import TaskWritten, check_written
from rocketmq_arrow.decode.inflate import inflate
from rocketmq_wire.errors import LocalProtocolError, RowRefusedError
from rocketmq_wire.model import BrokerAddresses, Host, QueueId, QueueSet, Route
from rocketmq_wire.records.properties import decode_properties
from rocketmq_wire.records.record import FLAG_BORN_HOST_V6, FLAG_STORE_HOST_V6
from rocketmq_wire.requests.messages import SendBatch, SendMessage
from support.batch_blocks import block_from_batch
from support.batch_entries import decode_batch

MAP = pa.map_(pa.string(), pa.string())
QUEUES = [QueueId("orders", "broker-a", index) for index in range(4)]


class FakeProducer:
    """Every topic has four queues."""

    group = "p"

    def queues(self, topic: str) -> list[QueueId]:
        return [QueueId(topic, "broker-a", index) for index in range(4)]

    def first_unique_key(self, count: int) -> str:
        assert count > 0
        return "0" * 32


def requests_of(
    columns: dict[str, pa.Array],
    topic: str | None = "orders",
    bytes_max: int = 1_000,
    is_grpc: bool = False,
    compression: str | None = None,
):
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    queue_indices = {name: queue_index for queue_index, name in enumerate(columns)}
    layout = SinkLayout(queue_indices, topic, bytes_max, is_grpc, compression, 100)
    made = SinkRequests(layout, FakeProducer(), WriteId("q", "7", 3), now_ms=lambda: 1)
    return list(made.of_batch(batch))


def messages_of(requests) -> dict[QueueId, list[tuple[bytes, dict[str, str]]]]:
    sent = defaultdict(list)
    for request in requests:
        assert isinstance(request, SendBatch)
        for entry in decode_batch(bytes(request.body)):
            properties = decode_properties(bytes(entry.properties))
            sent[request.queue].append((bytes(entry.body), properties))
    return sent


def bodies(count: int) -> pa.Array:
    return pa.array([b"%d" % number for number in range(count)])


def test_every_row_is_sent_once_with_what_tells_it_from_all_others():
    requests = requests_of({"body": bodies(40), "keys": pa.array(["k", None] * 20)})
    assert all(len(request.body) <= 1_000 for request in requests)
    rows = [row for found in messages_of(requests).values() for row in found]
    assert sorted(int(body) for body, _ in rows) == list(range(40))
    for body, properties in rows:
        assert properties["PYSPARK_WRITE"] == "q/7/3"
        assert int(properties["PYSPARK_ROW"][:16], 16) == int(body)
        assert properties.get("KEYS") == (None if int(body) % 2 else "k")


@pytest.mark.parametrize("topic", ["t", "t" * 127])
def test_a_batch_is_within_the_limit_as_brokers_store_it(topic):
    requests = requests_of({"body": pa.array([b"x"] * 9_000)}, topic=topic, bytes_max=1 << 20)
    host = Host(bytes(16), 1)
    stored = [
        block_from_batch(
            bytes(request.body),
            topic=topic,
            queue_index=0,
            born_ms=1,
            born_host=host,
            store_host=host,
            sys_flag=FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6,
        )
        for request in requests
    ]
    assert sum(map(len, stored)) == 9_000
    largest = max(len(block.buffer) for block in stored)
    # No more, and not much less.
    assert 5 << 17 < largest <= 1 << 20


def test_a_group_has_one_queue_and_keeps_its_order():
    groups = pa.array([f"order-{number % 5}" for number in range(100)])
    sent = messages_of(requests_of({"body": bodies(100), "messageGroup": groups}))
    queues = defaultdict(set)
    for queue, rows in sent.items():
        numbers = [int(body) for body, _ in rows]
        assert numbers == sorted(numbers)
        for _, properties in rows:
            queues[properties["__SHARDINGKEY"]].add(queue)
    assert len(queues) == 5
    assert all(len(found) == 1 for found in queues.values())


def test_the_group_order_42_goes_where_the_official_clients_send_it():
    queue_indices = assign_queues(QUEUES, 1, None, None, pa.array(["order-42"]))
    assert queue_indices.tolist() == [-7687897554513327571 % 4]


@pytest.mark.parametrize("listed", [("broker-a", "broker-b"), ("broker-b", "broker-a")])
def test_a_group_keeps_its_queue_in_whatever_order_a_route_lists_the_brokers(listed):
    counts = {"broker-a": 2, "broker-b": 3}
    route = Route(
        tuple(QueueSet(name, 4, counts[name], 6) for name in listed),
        tuple(BrokerAddresses(name, "c", {0: "a:1"}) for name in listed),
    )
    queues = route.writable_queues("orders")
    assert [(queue.broker[-1], queue.index) for queue in queues] == [
        *(("a", 0), ("a", 1)),
        *(("b", 0), ("b", 1), ("b", 2)),
    ]
    (queue_index,) = assign_queues(queues, 1, None, None, pa.array(["order-42"])).tolist()
    assert queue_index == -7687897554513327571 % 5
    assert queues[queue_index] == QueueId("orders", "broker-b", 2)


def test_each_topic_of_a_column_gets_its_rows():
    topics = pa.array(["a", "b", "a"])
    sent = messages_of(requests_of({"body": bodies(3), "topic": topics}, topic=None))
    found = {queue.topic: [int(body) for body, _ in rows] for queue, rows in sent.items()}
    assert found == {"a": [0, 2], "b": [1]}
    columns = {"body": bodies(3), "topic": topics}
    (only,) = messages_of(requests_of(columns, topic="c", bytes_max=5_000))
    assert only.topic == "c"


def test_compressed_bodies_share_no_batch_with_others_and_keep_their_queues():
    long = [b"%03d" % number * (60 if number % 5 == 0 else 1) for number in range(40)]
    groups = pa.array(["g" if number < 20 else None for number in range(40)])
    requests = requests_of(
        {"body": pa.array(long), "messageGroup": groups}, bytes_max=50_000, compression="lz4"
    )
    rows = []
    for request in requests:
        found = [bytes(entry.body) for entry in decode_batch(bytes(request.body))]
        assert request.sys_flag in (0, 0x101)
        rows += [inflate(b, 0x101, 1_000) if request.sys_flag else b for b in found]
    assert sorted(rows) == long
    # The group's order is kept over five times two requests; what has no order takes two.
    in_group = [row for row in rows if int(row[:3]) < 20]
    assert in_group == sorted(in_group)
    assert len(requests) == 8 + 2


def test_over_grpc_a_batch_holds_compressed_bodies_and_others():
    columns = {"body": pa.array([b"1", b"2" * 200, b"3"]), "queueId": pa.array([1, 1, 1])}
    (request,) = requests_of(columns, is_grpc=True, compression="zlib", bytes_max=5_000)
    data, flags = bytes(request.records), []
    while data:
        flags.append(int.from_bytes(data[36:40], "big"))
        data = data[int.from_bytes(data[:4], "big") :]
    assert flags == [0, 0x301, 0]


def test_a_replay_is_recognised_whatever_the_codec():
    columns = {"body": pa.array([b"x" * 300]), "queueId": pa.array([1])}
    row_ids = {
        properties["PYSPARK_ROW"]
        for codec in (None, "zlib", "zstd")
        for rows in messages_of(requests_of(columns, compression=codec)).values()
        for _, properties in rows
    }
    assert len(row_ids) == 1


def test_a_delayed_row_goes_alone():
    times = pa.array([None, 1_700_000_000_123_456, None], pa.timestamp("us", tz="UTC"))
    levels = pa.array([0, None, 3], pa.int32())
    requests = requests_of({"body": bodies(3), "delayLevel": levels, "deliveryTimestamp": times})
    alone = [request for request in requests if isinstance(request, SendMessage)]
    reason = [(bytes(r.body), decode_properties(r.properties)) for r in alone]
    assert [body for body, _ in reason] == [b"1", b"2"]
    assert reason[0][1]["TIMER_DELIVER_MS"] == "1700000000123"
    assert "DELAY" not in reason[0][1]
    assert reason[1][1]["DELAY"] == "3"
    assert len(requests) == 3


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"body": pa.array([b"x", None])}, r"row 1 \(counted from 0\) has no body"),
        ({"body": bodies(2), "queueId": pa.array([0, 4])}, "row 1 .* names queue 4.*0 to 3"),
        (
            {"body": bodies(1), "queueId": pa.array([0]), "messageGroup": pa.array(["g"])},
            "messageGroup.*and a queueId",
        ),
        (
            {"body": bodies(1), "delayLevel": pa.array([1]), "messageGroup": pa.array(["g"])},
            "whose order a delay would break",
        ),
        ({"body": bodies(1), "properties": pa.array([[("DELAY", "3")]], MAP)}, "DELAY.*map_filter"),
        ({"body": bodies(1), "tags": pa.array(["a\x01b"])}, "TAGS with a character 0x01"),
        ({"body": pa.array([b"", bytes(17_000_000)])}, "takes more than 16711680 bytes"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(columns, complaint):
    with pytest.raises(SinkRowError, match=rf"^\[ROCKETMQ_SINK\.ROW\] partition 3, .*{complaint}"):
        requests_of(columns)


@pytest.mark.parametrize(
    "regrouped",
    [
        {"messageGroup": pa.array([f"group-{n % 7}" for n in range(100)])},
        {"topic": pa.array([f"topic-{n % 3}" for n in range(100)])},
        {"delayLevel": pa.array([n % 2 for n in range(100)])},
        {"queueId": pa.array([n % 4 for n in range(100)])},
    ],
    ids=lambda columns: next(iter(columns)),
)
def test_a_row_keeps_its_number_however_rows_are_regrouped(regrouped):
    for row in (0, 50, 99):
        tags = ["bad\x01" if number == row else "fine" for number in range(100)]
        columns = {"body": bodies(100), "tags": pa.array(tags), **regrouped}
        topic = None if "topic" in regrouped else "orders"
        with pytest.raises(SinkRowError, match=rf"partition 3, row {row} \(.*has TAGS with"):
            requests_of(columns, topic)


def test_no_row_goes_to_the_decision_topic():
    layout = SinkLayout({"body": 0, "topic": 1}, None, 1_000, False, None, 100, 60, "decisions")
    batch = pa.record_batch({"body": bodies(2), "topic": pa.array(["orders", "decisions"])})
    made = SinkRequests(layout, FakeProducer(), WriteId("q", "7", 3)).of_batch(batch)
    with pytest.raises(SinkRowError, match=r"row.*1.* decisions is the decisionTopic"):
        list(made)


@pytest.mark.parametrize(
    ("ids", "brokers", "complaint"),
    [
        ([None, None], [None, "nowhere"], "row 1 has a brokerName and no queueId"),
        (None, ["broker-a", None], "row 0 has a brokerName and no queueId"),
        ([None, 0], [None, None], "row 1 has a queueId and no brokerName, and orders is on"),
        ([0, 1], ["broker-a", "broker-a"], "row 1 names queue 1, which orders does not have"),
        ([0, 0], ["broker-a", "nowhere"], "row 1 names queue 0, which orders does not have"),
    ],
)
def test_a_queue_that_is_named_by_half_is_refused(ids, brokers, complaint):
    queues = [QueueId("orders", broker, 0) for broker in ("broker-a", "broker-b")]
    given = None if ids is None else pa.array(ids, pa.int64())
    with pytest.raises(RowRefusedError, match=complaint):
        assign_queues(queues, 2, given, pa.array(brokers, pa.string()), None)


def test_where_there_is_one_broker_it_need_not_be_named():
    ids, nobody = pa.array([0, 3]), pa.array([None, "broker-a"], pa.string())
    assert assign_queues(QUEUES, 2, ids, nobody, None).tolist() == [0, 3]


def test_a_queue_id_alone_does_not_name_a_queue_of_two_brokers():
    queues = [QueueId("orders", broker, 0) for broker in ("broker-a", "broker-b")]
    with pytest.raises(LocalProtocolError, match="add a column brokerName"):
        assign_queues(queues, 1, pa.array([0]), None, None)
    brokers = pa.array(["broker-b", "broker-a", None])
    ids = pa.array([0, 0, None])
    assert assign_queues(queues, 3, ids, brokers, None).tolist() == [1, 0, ANY]


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(1, 30)), min_size=1), st.integers(1, 60))
def test_cuts_cover_every_row_once_within_the_limit(rows, bytes_max):
    queue_indices, sizes = (np.array(column) for column in zip(*sorted(rows), strict=True))
    covered: list[int] = []
    for queue_index, first, end in cut_batches(queue_indices, sizes, bytes_max):
        assert set(queue_indices[first:end].tolist()) == {queue_index}
        assert end == first + 1 or sizes[first:end].sum() <= bytes_max
        covered += range(first, end)
    assert covered == list(range(len(rows)))


class LeavingProducer(FakeProducer):
    """A topic on two brokers, of which one leaves the route, or a third comes."""

    brokers: tuple[str, ...] = ("broker-a", "broker-b")

    def queues(self, topic: str) -> list[QueueId]:
        return [QueueId(topic, broker, index) for broker in self.brokers for index in range(2)]


def test_a_task_keeps_to_the_queues_of_a_broker_that_is_away():
    producer = LeavingProducer()
    queue_indices = {"body": 0, "messageGroup": 1, "queueId": 2, "brokerName": 3}
    layout = SinkLayout(queue_indices, "orders", 1_000, False)
    made = SinkRequests(layout, producer, WriteId("q", "7", 3))
    groups = [*(f"g{n}" for n in range(20)), *[None] * 20]
    ids = pa.array([None] * 20 + [1, None] * 10, pa.int32())
    brokers = pa.array([None] * 20 + ["broker-b", None] * 10, pa.string())
    batch = pa.record_batch([bodies(40), pa.array(groups, pa.string()), ids, brokers], list("abcd"))

    def queue_of_each() -> list[QueueId]:
        found: dict[bytes, QueueId] = {}
        for queue, messages in messages_of(made.of_batch(batch)).items():
            found |= {body: queue for body, _ in messages}
        return [found[body] for body in batch.column(0).to_pylist()]

    began = queue_of_each()
    for brokers_now in (("broker-a",), ("broker-a", "broker-c"), ("broker-a", "broker-b")):
        producer.brokers = brokers_now
        now = queue_of_each()
        assert now[:20] == began[:20], "a group stays where it was"
        assert set(now[20::2]) == {QueueId("orders", "broker-b", 1)}
        assert {queue.broker for queue in now[21::2]} <= set(brokers_now)


def test_each_part_of_a_row_counts_in_its_digest():
    def digest(topic="t", body="b", keys=None, tags=None, properties=None, group=None):
        keys, tags, group = (pa.array([text], pa.string()) for text in (keys, tags, group))
        properties = pa.array([properties], MAP)
        return digests(topic, pa.array([body]), keys, tags, properties, group)[0]

    found = [
        digest(),
        digest(topic="u"),
        digest(body="c"),
        digest(keys="x"),
        digest(tags="x"),
        digest(properties=[("x", "")]),
        digest(properties=[("x", "y")]),
        digest(group="x"),
    ]
    assert len(set(found)) == 7
    assert found[0] == found[5]  # An empty value is not sent.


BODY = ("body", StringType())


def schema_of(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (("Tagz", StringType()), "'Tagz' is no part.*did you mean 'tags'"),
        (("queueOffset", LongType()), "no part of a message"),
        (("brokerName", StringType()), "needs a column 'queueId'"),
        (("properties", MapType(StringType(), LongType())), "must be map<string,string>"),
        (("deliveryTimestamp", StringType()), "must be timestamp"),
        (("BODY", StringType()), "there twice"),
    ],
)
def test_a_schema_is_refused_by_name(field, complaint):
    with pytest.raises(SinkSchemaError, match=rf"^\[ROCKETMQ_SINK\.SCHEMA\] .*{complaint}"):
        sink_columns(schema_of(BODY, field), has_topic_option=True)


def test_a_topic_must_come_from_somewhere():
    with pytest.raises(SinkSchemaError, match="give the option 'topic' or a column 'topic'"):
        sink_columns(schema_of(BODY), has_topic_option=False)


def test_a_batch_that_no_task_wrote_is_no_batch():
    with pytest.raises(NothingWrittenError, match=r"^\[ROCKETMQ_SINK\.NOTHING_WRITTEN\] .*trigger"):
        check_written([None, None])
    check_written([])
    check_written([TaskWritten(0), None])
