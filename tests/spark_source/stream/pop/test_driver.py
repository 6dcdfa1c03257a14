"""A stream that pops: which batches there are, what is acknowledged when, and a task's rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.definition import Use
from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.read.plan import ReadPlan
from pyspark_rocketmq.stream.pop.driver import open_pop_driver
from pyspark_rocketmq.stream.pop.partitions import PopPartition, read_popped
from rocketmq_arrow.source_columns import arrow_schema
from rocketmq_client.consumer.pop import PoppedRecords
from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError, ConnectError, CorruptRecordError, RocketMQError
from support.pop_queries import BASE, INVISIBLE_MS, PopWorld, driver_of, popped

PUBLIC = {"nameServer": "", "endpoints": "h:1"}


def offsets_of(partitions: list[PopPartition]) -> list[int]:
    return sorted(
        offset
        for partition in partitions
        for queue in partition.queues
        for _, offsets in queue.handles
        for offset in offsets
    )


def test_a_batch_is_acknowledged_by_the_call_behind_it() -> None:
    world = PopWorld([popped(0, 1), popped(2)])
    driver = driver_of(world)
    start = driver.initial_offset()
    first = driver.latest_offset(start)
    assert offsets_of(driver.partitions(start, first)) == [0, 1, 2]
    assert world.acked == []
    assert driver.latest_offset(first) == first
    assert sorted(world.acked) == [0, 1, 2]


def test_a_batch_that_is_not_durable_stays_the_next_one() -> None:
    world = PopWorld([popped(0)])
    driver = driver_of(world)
    start = driver.initial_offset()
    first = driver.latest_offset(start)
    world.answers = [popped(1)]
    assert driver.latest_offset(start) == first
    for _ in range(2):
        assert offsets_of(driver.partitions(start, first)) == [0]
    assert world.acked == []


def test_nothing_new_is_the_same_offset() -> None:
    driver = driver_of(PopWorld())
    start = {"batch": 7, "run": "before", "version": 1}
    assert driver.latest_offset(start) is start


def test_a_batch_from_before_a_restart_is_empty() -> None:
    world = PopWorld([popped(0)])
    driver = driver_of(world)
    logged = {"batch": 7, "run": "before", "version": 1}
    assert driver.partitions({"batch": 6, "run": "before", "version": 1}, logged) == []
    following = driver.latest_offset(logged)
    assert following == {"batch": 8, "run": "now", "version": 1}
    assert world.acked == []
    assert offsets_of(driver.partitions(logged, following)) == [0]


def test_a_batch_has_limits_by_rows_and_by_bytes() -> None:
    world = PopWorld([popped(0, 1), popped(2), popped(3)])
    driver = driver_of(world, maxOffsetsPerTrigger="3")
    end = driver.latest_offset(driver.initial_offset())
    assert offsets_of(driver.partitions(driver.initial_offset(), end)) == [0, 1, 2]
    world = PopWorld([popped(0), popped(1)])
    driver = driver_of(world, maxBytesPerTrigger="10")
    end = driver.latest_offset(driver.initial_offset())
    assert offsets_of(driver.partitions(driver.initial_offset(), end)) == [0]


def test_available_now_ends_with_what_was_there() -> None:
    world = PopWorld([popped(0), popped(1), popped(2)])
    driver = driver_of(world, backlog=2, maxOffsetsPerTrigger="1")
    driver.prepare_available_now()
    first = driver.latest_offset(driver.initial_offset())
    second = driver.latest_offset(first)
    assert driver.latest_offset(second) == second
    assert sorted(world.acked) == [0, 1]


def test_popped_messages_are_renewed_at_half_their_time_and_acknowledged_by_their_new_handle() -> (
    None
):
    world = PopWorld([popped(0)])
    driver = driver_of(world)
    end = driver.latest_offset(driver.initial_offset())
    leases = driver._ports.leases
    world.now_ms = INVISIBLE_MS // 2 - 1
    leases.renew_due()
    assert world.renewed == []
    world.now_ms += 1
    leases.renew_due()
    assert world.renewed == [0]
    (lease,) = leases._held
    assert lease.handle.pop_ms == world.now_ms
    driver.latest_offset(end)
    assert (world.acked, len(leases)) == ([0], 0)


def test_a_message_whose_invisible_time_ended_is_renewed_no_more() -> None:
    world = PopWorld([popped(0)], errors=[BrokerError(208, "gone")])
    driver = driver_of(world)
    driver.latest_offset(driver.initial_offset())
    world.now_ms = INVISIBLE_MS
    driver._ports.leases.renew_due()
    driver._ports.leases.renew_due()
    assert world.renewed == [0]


def test_acknowledgements_that_failed_on_the_way_are_tried_again() -> None:
    world = PopWorld([popped(0)])
    driver = driver_of(world)
    end = driver.latest_offset(driver.initial_offset())
    world.errors = [ConnectError("h:1", "refused")]
    driver.latest_offset(end)
    assert world.acked == []
    driver.latest_offset(end)
    assert world.acked == [0]


def test_the_end_hands_back_what_is_not_durable_and_nothing_else() -> None:
    world = PopWorld([popped(0, 1), popped(2)])
    driver = driver_of(world, maxOffsetsPerTrigger="2")
    first = driver.latest_offset(driver.initial_offset())
    driver.latest_offset(first)
    driver.close()
    assert (world.acked, world.handed_back) == ([0, 1], [2])


def test_the_end_acknowledges_what_it_owes_and_does_not_hand_it_back() -> None:
    refused = ConnectError("h:1", "refused")
    cases: list[tuple[list[RocketMQError], list[int]]] = [([], [0]), ([refused], [])]
    for errors, acked in cases:
        world = PopWorld([popped(0)])
        driver = driver_of(world)
        first = driver.latest_offset(driver.initial_offset())
        world.errors = [refused]
        driver.latest_offset(first)
        world.errors = errors
        driver.close()
        assert (world.acked, world.handed_back) == (acked, [])


def test_the_end_stops_asking_an_unavailable_broker() -> None:
    world = PopWorld([popped(*range(300)[i : i + 32]) for i in range(0, 300, 32)])
    driver = driver_of(world)
    driver.latest_offset(driver.initial_offset())
    world.errors = [ConnectError("h:1", "refused")] * 300
    driver.close()
    assert len(world.handed_back) == 256


def test_an_unavailable_cluster_fails_a_start_and_not_a_running_query() -> None:
    refused = ConnectError("h:1", "refused")
    world = PopWorld([refused])
    driver = driver_of(world)
    start = driver.initial_offset()
    assert driver.latest_offset(start) == start
    world.now_ms, world.answers = 10_000, [refused]
    with pytest.raises(ConnectError):
        driver.latest_offset(start)
    world.answers = [popped(0)]
    end = driver.latest_offset(start)
    world.answers = [refused]
    assert driver.latest_offset(end) == end


def plan_of(*names: str) -> ReadPlan:
    return ReadPlan(
        ConnectionSettings(("h:1",)), ReadSpec("g"), arrow_schema(names), "fail", True, True
    )


def test_rows_carry_the_handles_of_their_own_pops() -> None:
    world = PopWorld([popped(4, 5), popped(0, pop_ms=2_000), popped(0, index=0, retry="1")])
    driver = driver_of(world, minPartitions="2")
    end = driver.latest_offset(driver.initial_offset())
    partitions = driver.partitions(driver.initial_offset(), end)
    assert len(partitions) == 2
    rows = [
        row
        for partition in partitions
        for batch in read_popped(plan_of("body", "receiptHandle", "deliveryAttempt"), partition)
        for row in pa.Table.from_batches([batch]).to_pylist()
    ]
    assert sorted((row["receiptHandle"], row["body"]) for row in rows) == [
        ("0 1000 60000 3 1 broker-a 0 0", b"0"),
        ("0 2000 60000 3 0 broker-a 0 0", b"0"),
        ("4 1000 60000 3 0 broker-a 0 4", b"4"),
        ("4 1000 60000 3 0 broker-a 0 5", b"5"),
    ]
    assert {row["deliveryAttempt"] for row in rows} == {1}


def test_records_that_are_cut_off_are_no_batch() -> None:
    whole = popped(0, 1)
    torn = PoppedRecords("orders", "broker-a", whole.records[:-1], whole.handles, whole.reply)
    driver = driver_of(PopWorld([torn]))
    with pytest.raises(CorruptRecordError):
        driver.latest_offset(driver.initial_offset())


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"invisibleTimeMs": "10s", "consumeMode": "pull"}, "invisibleTimeMs"),
        ({"startingOffsets": "group"}, "startingOffsets"),
        ({"startingTimestamp": "5"}, "startingTimestamp"),
        ({"joinGroup": "true"}, "joinGroup"),
        ({"commitOffsets": "false"}, "commitOffsets"),
        ({"subscribe": "", "subscribePattern": "o.*"}, "consumeMode"),
        ({**PUBLIC, "startingOffsets": "earliest"}, "startingOffsets"),
        ({**PUBLIC, "invisibleTimeMs": "9s"}, "invisibleTimeMs"),
        ({"group": ""}, "consumeMode"),
    ],
)
def test_what_does_not_go_with_popping_is_refused_by_name(
    given: dict[str, str], named: str
) -> None:
    options = {name: text for name, text in {**BASE, **given}.items() if text}
    with pytest.raises(OptionError, match=f"option '{named}'"):
        read_options(options, Use.STREAM)


def test_a_proxy_alone_is_enough() -> None:
    options = {name: text for name, text in {**BASE, **PUBLIC}.items() if text}
    driver = open_pop_driver(read_options(options, Use.STREAM))
    driver.prepare_available_now()
    driver.close()


def test_a_batch_read_does_not_pop() -> None:
    with pytest.raises(OptionError, match="for streams"):
        read_options(BASE, Use.BATCH)
