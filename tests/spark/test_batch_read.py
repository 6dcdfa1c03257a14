"""Batch reads through a real Spark session."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq import DefaultSource, pin_offsets
from rocketmq_broker import Broker
from support.frames import assert_rows
from support.loader import Loader
from support.queries import rows_of

Read = Callable[..., DataFrame]


def ranges(frame: DataFrame) -> dict[int, tuple[int, int, int]]:
    """queue -> (first offset, last offset, count)."""
    offsets: dict[int, list[int]] = {}
    for _, queue, offset, _ in rows_of(frame):
        offsets.setdefault(queue, []).append(offset)
    return {queue: (min(found), max(found), len(found)) for queue, found in offsets.items()}


def test_the_format_is_found_without_registration_and_rows_are_exact(
    loader: Loader, topic: str, read: Read
) -> None:
    queues = loader.create(topic, 3)
    loader.put(queues[0], 1_500)
    loader.put(queues[2], 20)
    frame = read()
    assert_rows(frame, loader.rows(*queues))
    assert frame.columns == [
        "topic", "brokerName", "queueId", "queueOffset", "body", "tags", "keys",
        "bornTimestamp", "storeTimestamp",
    ]  # fmt: skip
    row = frame.where("queueId = 2 and queueOffset = 7").first()
    assert row is not None
    assert (row.topic, row.brokerName, row.tags, row.keys) == (topic, "broker-a", "A", "k")
    assert (row.storeTimestamp - row.bornTimestamp).total_seconds() < 60


def test_grpc_gives_the_same_rows(broker: Broker, loader: Loader, topic: str, read: Read) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 100)
    assert_df_equality(read(), read(endpoints=broker.endpoints), ignore_row_order=True)


def test_registering_by_hand_works_too(
    spark: SparkSession, loader: Loader, topic: str, read: Read
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 3)
    spark.dataSource.register(DefaultSource)
    assert_rows(read(), loader.rows(queue))


def test_starts_and_ends_by_number(loader: Loader, topic: str, read: Read) -> None:
    for queue in loader.create(topic, 2):
        loader.put(queue, 50)
    starts = json.dumps({topic: {"broker-a": {"0": 10, "1": -2}}})
    ends = json.dumps({topic: {"0": 20, "1": -1}})
    frame = read(startingOffsets=starts, endingOffsets=ends)
    assert ranges(frame) == {0: (10, 19, 10), 1: (0, 49, 50)}
    with pytest.raises(PySparkException, match=r"'endingOffsets' ends .* at 5, before its start"):
        read(startingOffsets=starts, endingOffsets=json.dumps({topic: {"0": 5, "1": -1}})).count()


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_an_offset_behind_the_end_is_a_wrong_option(
    loader: Loader, topic: str, read: Read, name: str
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 3)
    beyond = json.dumps({topic: {"0": 5}})
    with pytest.raises(PySparkException, match=rf"'{name}' has offset 5 for .* ends at 3: correct"):
        read(**{name: beyond}).count()
    assert read(**{name: beyond}, failOnDataLoss="false").count() == (name == "endingOffsets") * 3


def test_starts_and_ends_by_time(loader: Loader, topic: str, read: Read) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 10)
    first = loader.cluster.store_time_at(queue, 9)
    assert first is not None
    while (loader.cluster.store_time_at(queue, len(loader.sent[queue]) - 1) or 0) <= first + 1:
        loader.put(queue, 1)
    last = len(loader.sent[queue])
    middle = next(n for n in range(last) if (loader.cluster.store_time_at(queue, n) or 0) > first)
    assert ranges(read(startingTimestamp=str(first + 1))) == {0: (middle, last - 1, last - middle)}
    assert ranges(read(endingTimestamp=str(first + 1))) == {0: (0, middle - 1, middle)}
    by_queue = json.dumps({topic: {"0": first + 1}})
    frame = read(startingOffsetsByTimestamp=by_queue, endingOffsets="latest")
    assert ranges(frame) == {0: (middle, last - 1, last - middle)}
    later = str(first + 86_400_000)
    with pytest.raises(PySparkException, match="NO_MESSAGE_AT_TIME"):
        read(startingTimestamp=later).count()
    frame = read(startingTimestamp=later, startingOffsetsByTimestampStrategy="latest")
    assert frame.count() == 0
    reversed_times = {
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": first + 1}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": first - 60_000}}),
    }
    message = f"'endingOffsetsByTimestamp' ends .* at 0, before its start at {middle}"
    with pytest.raises(PySparkException, match=message):
        read(**reversed_times).count()
    early_end = json.dumps({topic: {"0": 5}})
    with pytest.raises(PySparkException, match=r"'endingOffsets' ends .* at 5, before its start"):
        read(startingTimestamp=str(first + 1), endingOffsets=early_end).count()


def test_starts_at_the_committed_offsets_of_a_group(loader: Loader, topic: str, read: Read) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 50)
    group = f"group-{topic}"
    assert loader.cluster.commit(group, {queues[0]: 30}) == {queues[0]: None}
    assert ranges(read(group=group, startingOffsets="group:error", assign=_only(topic, 0))) == {
        0: (30, 49, 20)
    }
    with pytest.raises(PySparkException, match=rf"NO_PROGRESS.*Did you mean '{group}'\?"):
        read(group=f"{group}x", startingOffsets="group:error").count()


def _only(topic: str, *indexes: int) -> str:
    return json.dumps({topic: {"broker-a": list(indexes)}})


def test_assigned_queues_and_patterns(loader: Loader, topic: str, read: Read) -> None:
    queues = loader.create(topic, 3)
    others = loader.create(f"{topic}-more", 1)
    for queue in [*queues, *others]:
        loader.put(queue, 5)
    assert_rows(read(assign=_only(topic, 0, 2)), loader.rows(queues[0], queues[2]))
    with pytest.raises(PySparkException, match=r"OPTION.UNKNOWN_QUEUE\] option 'assign'.*queue=9"):
        read(assign=_only(topic, 0, 9)).count()
    with pytest.raises(PySparkException, match=rf"TOPIC_NOT_FOUND.*Did you mean '{topic}'"):
        read(assign=_only(f"{topic}x", 0)).count()
    assert_rows(read(subscribePattern=f"{topic}.*"), loader.rows(*queues, *others))


def test_a_schema_is_the_projection(loader: Loader, topic: str, read: Read) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5, properties={"colour": "red"})
    frame = read("body BINARY, queueOffset LONG")
    assert frame.columns == ["body", "queueOffset"]
    assert frame.count() == 5
    row = read("properties MAP<STRING,STRING>, msgId STRING, storeSize INT").first()
    assert row is not None
    assert row.properties["colour"] == "red"
    assert row.storeSize > 100
    row = read(includeProperties="true").first()
    assert row is not None
    assert row.properties["TAGS"] == "A"


def test_a_wrong_schema_is_refused_by_name(loader: Loader, topic: str, read: Read) -> None:
    loader.create(topic, 1)
    with pytest.raises(PySparkException, match=r"unknown column 'bodi', did you mean 'body'"):
        read("bodi BINARY").count()
    with pytest.raises(PySparkException, match=r"ROCKETMQ_OPTION\.SCHEMA.*queueOffset"):
        read("queueOffset STRING").count()


def test_tags_filter(loader: Loader, topic: str, read: Read) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 1_000, tag="A")
    loader.put(queue, 3, tag="B")
    loader.put(queue, 1_000, tag="C")
    loader.put(queue, 2, tag="B")
    frame = read(tags="B || D")
    kept = [row for row in loader.rows(queue) if row[2] in (1000, 1001, 1002, 2003, 2004)]
    assert_rows(frame, kept)


def test_one_dataframe_sees_new_messages_and_new_queues(
    loader: Loader, topic: str, read: Read
) -> None:
    queues = loader.create(topic, 2)
    loader.put(queues[0], 5)
    frame = read()
    assert frame.count() == 5
    loader.put(queues[0], 5)
    loader.put(queues[1], 2)
    queues = loader.create(topic, 3)
    loader.put(queues[2], 4)
    assert_rows(frame, loader.rows(*queues))
    fixed = read(endingOffsets=json.dumps({topic: {"0": 10, "1": 2, "2": 4}}))
    loader.put(queues[0], 5)
    assert fixed.count() == 16
    assert frame.count() == 21


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, 3),
        ({"minPartitions": "8"}, 8),
        ({"maxPartitions": "2"}, 2),
        ({"maxRecordsPerPartition": "40"}, 9),
        ({"maxPartitions": "1", "maxRecordsPerPartition": "100"}, 3),
    ],
)
def test_however_the_work_is_divided_the_rows_are_the_same(
    loader: Loader, topic: str, read: Read, options: dict[str, str], tasks: int
) -> None:
    queues = loader.create(topic, 4)
    for queue in queues[:3]:
        loader.put(queue, 100)
    frame = read(**options)
    assert_rows(frame, loader.rows(*queues))
    assert frame.rdd.getNumPartitions() == tasks


def test_an_empty_topic_has_no_rows(loader: Loader, topic: str, read: Read) -> None:
    loader.create(topic, 2)
    assert read().count() == 0
    assert read(endingOffsets=json.dumps({topic: {"0": 0, "1": 0}})).count() == 0


def test_stopping_early_leaves_nothing_behind_for_the_next_read(
    loader: Loader, topic: str, read: Read
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 2_000)
    assert len(read().limit(3).collect()) == 3
    assert_rows(read(), loader.rows(queue))


def test_pinned_offsets_fix_a_read_and_commit_it_afterwards(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str
) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 10)
    options = {"nameServer": broker.name_server, "subscribe": topic, "group": f"group-{topic}"}
    pinned = pin_offsets(options)
    assert (pinned.messages, pinned.queues, pinned.tasks) == (20, 2, 2)
    for queue in queues:
        loader.put(queue, 10)
    frame = spark.read.format("rocketmq").options(**pinned.options).load()
    assert_rows(frame, loader.rows(*queues, end=10))
    pinned.commit()
    committed = loader.cluster.committed_offsets(f"group-{topic}", queues)
    assert committed == dict.fromkeys(queues, 10)
    assert pin_offsets({**options, "startingOffsets": "group"}).messages == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"pullBatchSize": "none"}, "must be a whole number"),
        ({"sql": "a >"}, "SQL92 expression is wrong at its end"),
        ({"joinGroup": "true", "group": "g"}, "'joinGroup' is for streams"),
        ({"startingOffsets": "latest"}, "makes no sense in a batch read"),
    ],
)
def test_wrong_options_are_refused_by_name(
    loader: Loader, topic: str, read: Read, options: dict[str, str], message: str
) -> None:
    loader.create(topic, 1)
    with pytest.raises(PySparkException, match=message):
        read(**options).count()


def test_a_topic_that_does_not_exist_is_named(topic: str, read: Read) -> None:
    with pytest.raises(PySparkException, match=rf"ROCKETMQ_TOPIC_NOT_FOUND\].*{topic}"):
        read().count()


def test_an_unreachable_address_is_reported_in_time(read: Read) -> None:
    with pytest.raises(PySparkException, match=r"ROCKETMQ_CONNECTION\.UNREACHABLE"):
        read(nameServer="127.0.0.1:1", connectTimeoutMs="200").count()


def test_a_temporary_view_reads_with_its_options(
    spark: SparkSession, broker: Broker, loader: Loader, topic: str
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 4)
    spark.sql(
        f"CREATE TEMPORARY VIEW orders USING rocketmq OPTIONS "
        f"(nameServer '{broker.name_server}', subscribe '{topic}')"
    )
    try:
        assert spark.sql("SELECT count(*) FROM orders").collect()[0][0] == 4
    finally:
        spark.sql("DROP VIEW orders")
