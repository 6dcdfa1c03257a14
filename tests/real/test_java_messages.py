"""What Java producers send is read as Java consumers of the same version read it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from rocketmq_client.producer.producer import Producer
from rocketmq_wire.model import Message, QueueId, TopicConfig
from support.expected_rows import shown_time
from support.loader import Loader
from support.queries import Queries
from support.real_cluster import RealCluster, run_program

Read = Callable[..., DataFrame]

_JAVA = Path(__file__).parent / "java"
_IPV6 = ("-Djava.net.preferIPv4Stack=false",)
_COLUMNS = """topic STRING, brokerName STRING, queueId INT, queueOffset BIGINT, body BINARY,
    tags STRING, keys STRING, bornTimestamp TIMESTAMP, storeTimestamp TIMESTAMP,
    properties MAP<STRING, STRING>, msgId STRING, offsetMsgId STRING, flag INT,
    reconsumeTimes INT, physicalOffset BIGINT, bodyCrc INT, storeSize INT,
    preparedTransactionOffset BIGINT"""


def send(
    broker: RealCluster,
    topic: str,
    *kinds: str,
    compress_type: str = "ZLIB",
    to: str = "broker-a",
    jvm: tuple[str, ...] = (),
) -> None:
    run_program(
        broker.version, _JAVA / "Send.java", broker.name_server, topic, to, *kinds,
        jvm=(f"-Drocketmq.message.compressType={compress_type}", *jvm),
    )  # fmt: skip


def shown_by_java(
    broker: RealCluster, topic: str, *expression: str, jvm: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """The topic's messages as the Java consumer has them, under the names of our columns."""
    printed = run_program(
        broker.version, _JAVA / "Show.java", broker.name_server, topic, *expression, jvm=jvm
    )
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return [as_columns(line) for line in lines]


def as_columns(line: dict[str, Any]) -> dict[str, Any]:
    text: dict[str, Any] = {
        name: None if line[name] is None else bytes.fromhex(line[name]).decode()
        for name in ("topic", "broker", "msgId", "offsetMsgId", "tags", "keys")
    }
    numbers = ("queueId", "queueOffset", "flag", "reconsumeTimes", "physicalOffset", "bodyCrc")
    return {
        **{name: line[name] for name in (*numbers, "storeSize")},
        **{name: text[name] for name in ("topic", "msgId", "offsetMsgId", "tags", "keys")},
        "brokerName": text["broker"],
        "body": bytes.fromhex(line["body"]),
        "bornTimestamp": shown_time(line["bornMs"]),
        "storeTimestamp": shown_time(line["storeMs"]),
        "preparedTransactionOffset": line["prepared"],
        "properties": {
            bytes.fromhex(name).decode(): bytes.fromhex(value).decode()
            for name, value in line["properties"].items()
        },
    }


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    rows = [row.asDict() for row in frame.orderBy("queueId", "queueOffset").collect()]
    for row in rows:
        row["body"] = bytes(row["body"])
        for name in ("bornTimestamp", "storeTimestamp"):
            row[name] = row[name].astimezone(datetime.timezone.utc)
    return rows


@pytest.mark.short
def test_every_kind_of_message_is_read_as_java_reads_it(
    broker: RealCluster, loader: Loader, topic: str, read: Read
) -> None:
    loader.create(topic, 1)
    kinds = ["plain", "unicode", "surrogate", "collision", "zlib", "properties", "batch10"]
    send(broker, topic, *kinds)
    loader.await_end(QueueId(topic, "broker-a", 0), 18)
    expected = shown_by_java(broker, topic)
    assert len(expected) == 18
    rows = rows_of(read(_COLUMNS))
    assert rows == expected
    assert {row["body"][:5] for row in rows} >= {b"plain", b"abcde", b"batch"}
    # Two tags with one hash: the broker sends both.
    only = rows_of(read(_COLUMNS, tags="AaAa"))
    assert [row["body"] for row in only] == [b"collide1"]


def test_ten_thousand_odd_properties_are_read_as_java_reads_them(
    broker: RealCluster, loader: Loader, topic: str, read: Read
) -> None:
    loader.create(topic, 1)
    send(broker, topic, "odd", "limit")
    loader.await_end(QueueId(topic, "broker-a", 0), 201)
    expected = shown_by_java(broker, topic)
    rows = rows_of(read(_COLUMNS))
    assert len(rows) == len(expected) == 201
    for row, wanted in zip(rows, expected, strict=True):
        assert row == wanted
    assert sum(len(row["properties"]) for row in rows) > 9_000
    assert len(rows[-1]["properties"]["full"].encode()) == 32_000


def test_other_compressions_are_read(
    broker: RealCluster, loader: Loader, topic: str, read: Read
) -> None:
    loader.create(topic, 1)
    for kind in ("lz4", "zstd"):
        send(broker, topic, kind, compress_type=kind.upper())
    loader.await_end(QueueId(topic, "broker-a", 0), 2)
    rows = rows_of(read(_COLUMNS))
    assert [row["body"][-4:] for row in rows] == [b"jlz4", b"zstd"]
    # Stored in fewer bytes: they were compressed.
    assert all(row["storeSize"] < 1_000 for row in rows)
    assert rows == shown_by_java(broker, topic)


def test_bodies_of_4_mb_arrive_whole(
    broker: RealCluster, loader: Loader, topic: str, read: Read, queries: Queries
) -> None:
    loader.create(topic, 1)
    send(broker, topic, "large", "plain", "large")
    loader.await_end(QueueId(topic, "broker-a", 0), 4)
    sizes = read().selectExpr("queueOffset", "length(body)", "crc32(body)").orderBy("queueOffset")
    found = [tuple(row) for row in sizes.collect()]
    assert [size for _, size, _ in found] == [4 << 20, 5, 6, 4 << 20]
    assert found[0][2] == found[3][2]
    batches = queries.available(startingOffsets="earliest", maxBytesPerTrigger="5m")
    assert [len(body) for *_, body in batches.rows] == [4 << 20, 5, 6, 4 << 20]


def test_retry_and_dead_letter_topics_are_read_when_named_and_by_no_pattern(
    loader: Loader, topic: str, read: Read, queries: Queries
) -> None:
    retry, dead = f"%RETRY%{topic}", f"%DLQ%{topic}"
    loader.create(topic, 1)
    with Producer(loader.cluster) as producer:
        for name in (retry, dead):
            loader.cluster.create_topic(TopicConfig(name, 1, 1))
            for number in range(5):  # One by one: retry topics take no batches.
                producer.send(Message(name, b"%d" % number), QueueId(name, "broker-a", 0))
            loader.await_end(QueueId(name, "broker-a", 0), 5)
    loader.put(QueueId(topic, "broker-a", 0), 3)
    assert read(subscribe=f"{retry},{dead}").count() == 10
    batches = queries.available(subscribe=dead, startingOffsets="earliest")
    assert batches.rows == [(dead, 0, number, b"%d" % number) for number in range(5)]
    assert read(subscribePattern=f".*{topic}").count() == 3


def test_records_with_ipv6_hosts_are_read_as_java_reads_them(
    broker: RealCluster, loader: Loader, topic: str, read: Read, queries: Queries
) -> None:
    node = broker.add_broker("broker-6", brokerIP1="[::1]", brokerIP2="[::1]", bindAddress="::")
    try:
        loader.cluster.create_topic(TopicConfig(topic, 1, 1), "broker-6")
        queue = QueueId(topic, "broker-6", 0)
        send(broker, topic, "plain", "unicode", "zlib", "batch10", to="broker-6", jvm=_IPV6)
        loader.await_end(queue, 14)
        rows = rows_of(read(f"{_COLUMNS}, bornHost STRING, storeHost STRING"))
        hosts = {(row.pop("bornHost").rpartition(":")[0], row.pop("storeHost")) for row in rows}
        assert hosts == {("[::1]", node.address)}
        assert rows == shown_by_java(broker, topic, jvm=_IPV6)
        assert all(len(row["offsetMsgId"]) == 56 for row in rows)
        streamed = queries.available(startingOffsets="earliest", group=f"group-{topic}")
        assert len(streamed.rows) == 14
        assert loader.cluster.committed_offsets(f"group-{topic}", [queue]) == {queue: 14}
    finally:
        broker.remove(node)
