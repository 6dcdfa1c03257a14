"""The worker's side against a cluster in memory: late ends, checks, losses."""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import cast

import pyarrow as pa
import pytest

from pyspark_rocketmq.client_settings import connection_settings, read_spec
from pyspark_rocketmq.errors import DataLossError, ReadOutageError
from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.planning.batch import (
    EARLIEST,
    LATEST,
    BatchTask,
    PlannedQueue,
    QueueSlice,
    plan_batch,
)
from pyspark_rocketmq.planning.split import Split
from pyspark_rocketmq.planning.topic_identity import QueueIdentity
from pyspark_rocketmq.read import task as partition_read
from pyspark_rocketmq.read.plan import ReadPlan
from pyspark_rocketmq.read.task import (
    RangePartition,
    range_partitions,
    read_ranges,
    read_task,
    resolve_task,
)
from rocketmq_arrow.source_columns import arrow_schema
from rocketmq_client.download.contract import RangeChunk
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import LossReason, lost_range
from rocketmq_wire.errors import ConnectError, CorruptRecordError
from rocketmq_wire.model import Bounds, OffsetRange, QueueId
from support.fake_cluster import FakeCluster, FakeWorld


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWorld]:
    world = FakeWorld()
    monkeypatch.setattr(partition_read, "open_cluster", world.open_cluster)
    monkeypatch.setattr(partition_read, "_idle", {})
    yield world
    for idle in partition_read._idle.values():
        for _, cluster in idle:
            cluster.close()


def plan(**options: str) -> ReadPlan:
    parsed = read_options({"nameServer": "h:1", "subscribe": "orders", **options})
    return ReadPlan(
        connection_settings(parsed.connection),
        read_spec(parsed),
        arrow_schema(["queueId", "queueOffset", "body"]),
        parsed.corrupt_messages,
        parsed.check_crc,
        parsed.fail_on_data_loss,
        parsed.starting_timestamp,
    )


def rows(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, int]]:
    return [(row["queueId"], row["queueOffset"]) for batch in batches for row in batch.to_pylist()]


def offsets(queue: QueueId, start: int, end: int) -> list[tuple[int, int]]:
    return [(queue.index, offset) for offset in range(start, end)]


def test_ranges_are_read_exactly_and_again_the_same(world: FakeWorld) -> None:
    a, b = world.create("orders", 2)
    world.put(a, 30)
    world.put(b, 30)
    ranges = (OffsetRange(a, 3, 25), OffsetRange(b, 0, 8))
    wanted = offsets(a, 3, 25) + offsets(b, 0, 8)
    assert rows(read_ranges(plan(), ranges)) == wanted
    assert rows(read_ranges(plan(), ranges, {"broker-a": "h:1"})) == wanted
    assert world.hinted == {"broker-a": "h:1"}
    assert world.opened == 1  # The connection is kept for the next task.


def test_a_reader_left_in_the_middle_does_not_leave_its_connection_to_others(
    world: FakeWorld,
) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 30)
    reader = read_ranges(plan(), (OffsetRange(a, 0, 30),))
    next(reader)
    reader.close()  # type: ignore[attr-defined]
    assert rows(read_ranges(plan(), (OffsetRange(a, 0, 30),))) == offsets(a, 0, 30)
    assert world.opened == 2


def test_what_tasks_import_is_frozen_once_at_their_end(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 3)
    frozen: list[int] = []
    monkeypatch.setattr(partition_read, "_frozen", (0, 0))
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(len(sys.modules)))
    reader = read_ranges(plan(), (OffsetRange(a, 0, 3),))
    next(reader)
    assert not frozen
    assert rows(reader) == []
    assert rows(read_ranges(plan(), (OffsetRange(a, 0, 3),))) == offsets(a, 0, 3)
    assert len(frozen) == 1
    monkeypatch.setitem(sys.modules, "imported_by_a_task", ModuleType("imported_by_a_task"))
    assert rows(read_task(plan(), BatchTask((QueueSlice(a, 0, 3),), (), (a,)))) == offsets(a, 0, 3)
    assert len(frozen) == 2


def test_two_readers_at_a_time_do_not_share_a_connection(world: FakeWorld) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 30)
    first = read_ranges(plan(), (OffsetRange(a, 0, 30),))
    next(first)
    assert rows(read_ranges(plan(), (OffsetRange(a, 0, 30),))) == offsets(a, 0, 30)
    assert len(rows(first)) == 23
    assert world.opened == 2


def test_the_plan_travels_to_workers(world: FakeWorld) -> None:  # noqa: ARG001
    wanted = plan(tags="A || B")
    assert pickle.loads(pickle.dumps(wanted)) == wanted


def test_late_ends_are_what_is_there_when_read(world: FakeWorld) -> None:
    a, b = world.create("orders", 2)
    world.put(a, 10)
    task = BatchTask(
        (QueueSlice(a, EARLIEST, LATEST), QueueSlice(b, 0, LATEST)), ("orders",), (a, b)
    )
    assert rows(read_task(plan(), task)) == offsets(a, 0, 10)
    world.put(a, 5)
    world.put(b, 2)
    world.expire(a, 4)
    _, _, c = world.create("orders", 3)
    world.put(c, 3)
    wanted = offsets(a, 4, 15) + offsets(b, 0, 2) + offsets(c, 0, 3)
    assert rows(read_task(plan(), task)) == wanted


def test_a_queue_the_plan_did_not_know_is_read_from_the_time_that_the_read_starts_at(
    world: FakeWorld,
) -> None:
    a, b = world.create("orders", 2)
    world.put(b, 10)
    since_ms = str(world.queues[b].stored[4][0])
    task = BatchTask((QueueSlice(a, 0, LATEST),), ("orders",), (a,))
    assert rows(read_task(plan(startingTimestamp=since_ms), task)) == offsets(b, 4, 10)


def test_a_planned_queue_that_ends_earlier_when_read_is_a_loss(world: FakeWorld) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 10)
    task = BatchTask((QueueSlice(a, 8, LATEST, 10),))
    world.truncate(a, 5)
    lost = r"^\[ROCKETMQ_DATA_LOSS\.TRUNCATED\] "
    with pytest.raises(DataLossError, match=lost + r".*requested=8 available=\[0,5\): .* 2 mess"):
        rows(read_task(plan(), task))
    assert rows(read_task(plan(failOnDataLoss="false"), task)) == []
    task = BatchTask((QueueSlice(a, EARLIEST, LATEST, 10),))
    with pytest.raises(DataLossError, match=lost + r".*requested=5 available=\[0,5\): .* 5 mess"):
        rows(read_task(plan(), task))
    assert rows(read_task(plan(failOnDataLoss="false"), task)) == offsets(a, 0, 5)


@pytest.mark.parametrize("start", [EARLIEST, 3])
def test_a_planned_queue_or_topic_that_is_gone_when_read_is_a_loss(
    world: FakeWorld, caplog: pytest.LogCaptureFixture, start: int
) -> None:
    a, b = world.create("orders", 2)
    world.put(b, 10)
    task = BatchTask((QueueSlice(b, start, LATEST, 10),))
    # The broker answers zeros for what it does not have.
    del world.queues[b]
    with pytest.raises(DataLossError, match=r"^\[ROCKETMQ_DATA_LOSS\.QUEUE_REMOVED\] "):
        rows(read_task(plan(), task))
    assert rows(read_task(plan(failOnDataLoss="false"), task)) == []
    del world.queues[a]
    with pytest.raises(DataLossError, match=r"^\[ROCKETMQ_DATA_LOSS\.TOPIC_DELETED\] "):
        rows(read_task(plan(), task))
    assert rows(read_task(plan(failOnDataLoss="false"), task)) == []
    assert "TOPIC_DELETED" in caplog.text


@pytest.mark.parametrize("is_start_late", [True, False])
def test_a_topic_deleted_after_the_plan_is_a_loss_of_what_was_planned(
    world: FakeWorld, caplog: pytest.LogCaptureFixture, is_start_late: bool
) -> None:
    a, b = world.create("orders", 2)
    world.put(a, 10)
    queues = [
        PlannedQueue(a, 0, 10, is_start_late=is_start_late, is_end_late=True),
        PlannedQueue(b, 0, 0, is_end_late=True),
    ]
    (task,) = plan_batch(queues, Split(), ["orders"])
    assert task.unplanned_topics
    world.delete("orders")
    with pytest.raises(DataLossError, match=r"^\[ROCKETMQ_DATA_LOSS\.TOPIC_DELETED\] "):
        rows(read_task(plan(), task))
    assert rows(read_task(plan(failOnDataLoss="false"), task)) == []
    assert "TOPIC_DELETED" in caplog.text


@pytest.mark.parametrize("is_back", [True, False])
def test_a_task_waits_for_a_topic_whose_broker_is_unavailable(
    world: FakeWorld, is_back: bool
) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 10)
    (task,) = plan_batch([PlannedQueue(a, 0, 10, is_end_late=True)], Split(), ["orders"])
    (late,) = world.create("orders", 2)[1:]
    world.put(late, 3)
    # Neither is a broker that has just come back in its topics' routes at once.
    world.topics_without_route.add("orders")
    world.brokers_away |= set() if is_back else {"broker-a"}
    with pytest.raises(ConnectError) as failure:
        resolve_task(plan(), FakeCluster(world), task)  # type: ignore[arg-type]
    assert failure.value.retryable
    world.brokers_away.clear()
    world.topics_without_route.clear()
    assert rows(read_task(plan(), task)) == offsets(a, 0, 10) + offsets(late, 0, 3)


def test_a_queue_planned_empty_may_be_gone_when_read(world: FakeWorld) -> None:
    a, b = world.create("orders", 2)
    del world.queues[b]
    slices = (QueueSlice(a, EARLIEST, LATEST), QueueSlice(b, 5, LATEST))
    assert rows(read_task(plan(), BatchTask(slices))) == []
    world.put(a, 3)
    with pytest.raises(DataLossError, match=r"TRUNCATED\].*requested=5 available=\[0,3\)"):
        rows(read_task(plan(), BatchTask((QueueSlice(a, 5, LATEST),))))


def test_a_task_reads_what_was_planned_from_a_lagging_replica(world: FakeWorld) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 6)
    world.masters_away = True
    task = BatchTask((QueueSlice(a, EARLIEST, LATEST, 10),))
    assert resolve_task(plan(), FakeCluster(world), task) == [OffsetRange(a, 0, 10)]  # type: ignore[arg-type]


def test_expired_offsets_fail_or_are_counted_and_passed_over(
    world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = world.create("orders", 2)
    world.put(a, 30)
    world.put(b, 5)
    world.expire(a, 10)
    ranges = (OffsetRange(a, 3, 25), OffsetRange(b, 0, 5))
    with pytest.raises(
        DataLossError, match=r"OFFSET_EXPIRED\].*requested=3 available=\[10,30\): 7 messages"
    ):
        rows(read_ranges(plan(), ranges))
    wanted = offsets(a, 10, 25) + offsets(b, 0, 5)
    assert rows(read_ranges(plan(failOnDataLoss="false"), ranges)) == wanted
    assert "7 messages are gone" in caplog.text


def test_an_offset_that_does_not_come_is_a_loss(
    world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 10)
    world.holes.add((a, 4))
    ranges = (OffsetRange(a, 0, 10),)
    with pytest.raises(DataLossError, match=r"^\[ROCKETMQ_DATA_LOSS\.HOLE\].*1 message is gone"):
        rows(read_ranges(plan(), ranges))
    survivors = [row for row in offsets(a, 0, 10) if row != (0, 4)]
    assert rows(read_ranges(plan(failOnDataLoss="false"), ranges)) == survivors
    assert "1 message is gone" in caplog.text


def test_a_damaged_message_fails_or_is_skipped_or_shown(
    world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 10)
    world.damaged.add((a, 4))
    ranges = (OffsetRange(a, 0, 10),)
    with pytest.raises(CorruptRecordError, match=r"ROCKETMQ_CORRUPT_MESSAGE\].*orders"):
        rows(read_ranges(plan(), ranges))
    survivors = [row for row in offsets(a, 0, 10) if row != (0, 4)]
    assert rows(read_ranges(plan(corruptMessages="skip"), ranges)) == survivors
    assert "1 corrupt message skipped, since corruptMessages=skip" in caplog.text
    assert rows(read_ranges(plan(checkCrc="false"), ranges)) == offsets(a, 0, 10)
    emitting = replace(
        plan(corruptMessages="emit"), schema=arrow_schema(["queueOffset", "corruptReason"])
    )
    shown = [row for batch in read_ranges(emitting, ranges) for row in batch.to_pylist()]
    assert [row["queueOffset"] for row in shown if row["corruptReason"]] == [4]
    assert len(shown) == 10


def test_tags_are_checked_exactly_here(world: FakeWorld) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 3, "A")
    world.put(a, 2, "B")
    world.put(a, 1, "C")
    # This cluster does not filter at all: what a hash collision would let through.
    ranges = (OffsetRange(a, 0, 6),)
    assert rows(read_ranges(plan(tags="B || C"), ranges)) == offsets(a, 3, 6)


def test_connections_of_other_settings_are_not_mixed_up(world: FakeWorld) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 3)
    here = plan()
    there = replace(here, settings=replace(here.settings, name_servers=("other:1",)))
    for which in (here, there, here, there):
        rows(read_ranges(which, (OffsetRange(a, 0, 3),)))
    assert world.opened == 2


@pytest.mark.parametrize("name", ["accessKey", "secretKey", "securityToken"])
def test_connections_of_other_keys_are_not_mixed_up(world: FakeWorld, name: str) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 3)
    keys = {"accessKey": "access", "secretKey": "secret", "securityToken": "token"}
    for given in ({}, keys, {**keys, name: "another"}, keys, {}):
        rows(read_ranges(plan(**given), (OffsetRange(a, 0, 3),)))
    assert world.opened == 3


def test_of_the_connections_that_are_kept_the_longest_unused_is_closed(world: FakeWorld) -> None:
    opened: list[FakeCluster] = []
    (a,) = world.create("orders", 1)
    world.put(a, 3)
    wanted = plan()
    for _ in range(partition_read._IDLE_MAX + 2):
        opened.append(FakeCluster(world))
        partition_read._put_back(wanted.settings, opened[-1], is_reusable=True)  # type: ignore[arg-type]
    assert [cluster.is_closed for cluster in opened] == [True] * 2 + [False] * 8


def test_a_read_that_waited_in_vain_reports_how_long(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 10)
    refused = ConnectError("broker-a:10911", "refused")

    def away(*_: object) -> Iterator[RangeChunk]:
        raise refused

    monkeypatch.setattr(FakeCluster, "read_ranges", away)
    with pytest.raises(ReadOutageError) as failure:
        list(read_ranges(plan(**{"retry.outageMs": "7s"}), [OffsetRange(a, 0, 10)]))
    expected = str(pickle.loads(pickle.dumps(failure.value)))
    assert expected.startswith("[ROCKETMQ_CONNECTION.REFUSED] cannot connect to broker-a:10911")
    assert "waited for 7 s (retry.outageMs)" in expected
    assert "checkpoint" in expected


# --- a topic that is created again -----------------------------------------------------------


def recreate(world: FakeWorld, queue: QueueId, count: int) -> None:
    world.delete("orders")
    world.create("orders", 1)
    world.put(queue, count)


def planned_tasks(world: FakeWorld, *ranges: OffsetRange) -> list[RangePartition]:
    """A task for each range, as it reaches its worker, with the identities that the topics have."""
    stored = {queue: held.stored[0][0] for queue, held in world.queues.items()}
    identities = {queue: QueueIdentity(time, None) for queue, time in stored.items()}
    made = range_partitions([(piece,) for piece in ranges], {}, identities)
    return cast("list[RangePartition]", pickle.loads(pickle.dumps(made)))


def test_one_request_proves_that_a_planned_topic_is_the_same(world: FakeWorld) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 30)
    (task,) = planned_tasks(world, OffsetRange(a, 10, 20))
    world.calls.clear()
    assert rows(task.read(plan())) == offsets(a, 10, 20)
    assert world.calls == ["earliest_store_times"]
    # Retention is no recreation.
    world.expire(a, 5)
    assert rows(task.read(plan())) == offsets(a, 10, 20)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_range_of_another_topic_is_never_read_as_if_nothing_had_happened(
    world: FakeWorld, when: str
) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 30)
    (task,) = planned_tasks(world, OffsetRange(a, 10, 20))
    batches = task.read(plan())
    if when == "meanwhile":
        next(batches)
    recreate(world, a, 60)
    with pytest.raises(DataLossError) as failure:
        list(batches)
    text = str(failure.value)
    assert "TOPIC_RECREATED] topic=orders broker=broker-a queue=0 requested=10" in text
    assert text.endswith("Set failOnDataLoss=false to continue from 0.")


def test_offsets_that_a_recreated_topic_does_not_have_are_reported_as_a_recreation(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 30)
    (task,) = planned_tasks(world, OffsetRange(a, 10, 20))
    recreate(world, a, 12)
    gone = lost_range(LossReason.TRUNCATED, a, 12, 20, Bounds(0, 12))

    def truncated(*_: object) -> Iterator[RangeChunk]:
        raise RangeLostError(gone)

    monkeypatch.setattr(FakeCluster, "read_ranges", truncated)
    with pytest.raises(DataLossError, match=r"TOPIC_RECREATED.*continue from 0\.$"):
        list(task.read(plan()))
    # The tail of the same topic: the stream resumes at the queue's end.
    with pytest.raises(DataLossError, match=r"TRUNCATED.*continue from 12\.$"):
        list(read_ranges(plan(), task.ranges))


def test_without_fail_on_data_loss_no_message_of_another_topic_is_read_in_its_range(
    world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    (a,) = world.create("orders", 1)
    world.put(a, 30)
    (task,) = planned_tasks(world, OffsetRange(a, 10, 20))
    recreate(world, a, 60)
    assert rows(task.read(plan(failOnDataLoss="false"))) == []
    assert "TOPIC_RECREATED" in caplog.text
