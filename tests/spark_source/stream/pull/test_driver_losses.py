"""What a stream's driver makes of brokers that are away and of messages that are gone."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import (
    DataLossError,
)
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from rocketmq_client.loss import LossReason
from rocketmq_wire.errors import BrokerError, broker_error
from support.driver_queries import Run, offsets
from support.fake_cluster import FakeWorld


def test_a_queue_stays_while_its_broker_is_missing_and_the_others_are_read(
    world: FakeWorld, run: Run
) -> None:
    a, b = world.create("orders", 1) + world.create("orders", 1, "broker-b")
    world.put(a, 5)
    world.put(b, 5)
    query = run(startingOffsets="earliest")
    start = query.latest(query.driver.initial_offset())
    gone = world.queues.pop(b)
    world.brokers_away.add("broker-b")
    world.put(a, 1)
    end = query.latest(start)
    assert offsets(end) == {a: 6, b: 5}
    # A restart meanwhile keeps it as well.
    again = run(startingOffsets="earliest")
    world.put(a, 1)
    end = again.latest(end)
    assert offsets(end) == {a: 7, b: 5}
    world.queues[b] = gone
    world.brokers_away.clear()
    world.put(b, 2)
    assert offsets(again.latest(end)) == {a: 7, b: 7}


@pytest.mark.parametrize("fails", [True, False])
def test_expiry_is_found_at_a_restart(world: FakeWorld, run: Run, fails: bool) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 10)
    start = SourceOffset({queue: 3}).to_json()
    world.expire(queue, 8)
    query = run(failOnDataLoss=str(fails).lower())
    if fails:
        expected = r"^\[ROCKETMQ_DATA_LOSS\.OFFSET_EXPIRED\] .*\[8,10\): 5 messages"
        with pytest.raises(DataLossError, match=expected):
            query.latest(start)
    else:
        end = query.latest(start)
        assert end["starts"] == {"orders": {"broker-a": {"0": 8}}}
        assert offsets(end) == {queue: 10}
        assert query.latest(end) == end


@pytest.mark.parametrize("fails", [True, False])
def test_truncation_is_found_while_running(world: FakeWorld, run: Run, fails: bool) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 10)
    query = run(startingOffsets="earliest", failOnDataLoss=str(fails).lower())
    end = query.latest(query.driver.initial_offset())
    world.truncate(queue, 6)
    if fails:
        with pytest.raises(DataLossError, match=r"TRUNCATED\].*requested=10 available=\[0,6\)"):
            query.latest(end)
        return
    end = query.latest(end)
    assert offsets(end) == {queue: 6}
    assert SourceOffset.from_json(end).starts == {queue: 6}
    world.put(queue, 3)
    end = query.latest(end)
    assert offsets(end) == {queue: 9}
    assert SourceOffset.from_json(end).starts == {}


def test_a_lagging_replica_is_no_truncation_before_the_outage_is_over(
    world: FakeWorld, run: Run
) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 10)
    query = run(startingOffsets="earliest", failOnDataLoss="false", retry__outageMs="30s")
    end = query.latest(query.driver.initial_offset())
    behind = world.queues[queue].stored[6:]
    world.truncate(queue, 6)
    world.masters_away = True
    for _ in range(29):
        query.now_ms += 1_000
        assert query.latest(end) == end
    # The master comes back with what it had, and one more: nothing is read twice.
    world.queues[queue].stored += behind
    world.masters_away = False
    world.put(queue, 1)
    end = query.latest(end)
    assert (offsets(end), SourceOffset.from_json(end).starts) == ({queue: 11}, {})
    world.truncate(queue, 6)
    world.masters_away = True
    query.now_ms += 1_000
    assert query.latest(end) == end
    query.now_ms += 30_000
    assert offsets(query.latest(end)) == {queue: 6}


@pytest.mark.parametrize("refusal", [None, broker_error(3, "request code 32 not supported")])
@pytest.mark.parametrize("fails", [True, False])
def test_a_recreated_and_refilled_topic_is_found_at_a_restart(
    world: FakeWorld, run: Run, fails: bool, refusal: BrokerError | None
) -> None:
    world.refusal_of_first_times = refusal
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    query = run(startingOffsets="earliest")
    end = query.latest(query.driver.initial_offset())
    world.delete("orders")
    world.create("orders", 1)
    world.put(queue, 20)
    again = run(failOnDataLoss=str(fails).lower())
    if fails:
        expected = r"^\[ROCKETMQ_DATA_LOSS\.TOPIC_RECREATED\] .*requested=5"
        with pytest.raises(DataLossError, match=expected):
            again.latest(end)
        return
    end = again.latest(end)
    assert SourceOffset.from_json(end).starts == {queue: 0}
    assert offsets(end) == {queue: 20}
    assert run().latest(end) == end


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("first", [0, 10, 19])
def test_a_recreated_topic_is_found_at_a_restart_though_the_old_one_had_lost_its_first_message(
    world: FakeWorld, run: Run, fails: bool, first: int
) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 50)
    world.expire(queue, 20)
    query = run(startingOffsets="earliest")
    end = query.latest(query.driver.initial_offset())
    assert end["firsts"] == {"orders": {"broker-a": {"0": 20}}}
    world.delete("orders")
    world.create("orders", 1)
    world.put(queue, 60)
    world.expire(queue, first)
    again = run(failOnDataLoss=str(fails).lower())
    if fails:
        expected = (
            rf"^\[ROCKETMQ_DATA_LOSS\.TOPIC_RECREATED\] .*requested=50 available=\[{first},60\)"
        )
        with pytest.raises(DataLossError, match=expected):
            again.latest(end)
        return
    end = again.latest(end)
    assert SourceOffset.from_json(end).starts == {queue: first}
    assert offsets(end) == {queue: 60}
    world.put(queue, 1)
    assert offsets(run().latest(end)) == {queue: 61}


def test_the_identity_of_a_queue_follows_retention_and_an_idle_query_keeps_its_text(
    world: FakeWorld, run: Run
) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    query = run(startingOffsets="earliest")
    start = query.latest(query.driver.initial_offset())
    assert start["births"] == {"orders": {"broker-a": {"0": world.queues[queue].stored[0][0]}}}
    assert "firsts" not in start
    world.expire(queue, 3)
    assert (
        query.until(start, lambda _: query.driver._offsets.identity.first_offset(queue) == 3)
        == start
    )
    world.put(queue, 1)
    end = query.latest(start)
    assert (end["births"], end["firsts"]) == ({}, {"orders": {"broker-a": {"0": 3}}})
    # A run that begins with the older text knows better at once, and stores it in its next batch.
    again = run()
    assert again.latest(end) == end
    assert again.latest(start) == end
    world.delete("orders")
    world.create("orders", 1)
    world.put(queue, 9)
    for before in (start, end):
        with pytest.raises(DataLossError, match=r"TOPIC_RECREATED\]"):
            run().latest(before)


def test_a_replica_with_older_messages_is_no_recreated_topic(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 10)
    kept = world.queues[queue].stored[2:5]
    world.expire(queue, 5)
    query = run(startingOffsets="earliest", failOnDataLoss="false", retry__outageMs="0")
    start = query.latest(query.driver.initial_offset())
    world.masters_away = True
    world.queues[queue].stored[:0] = kept
    world.queues[queue].start = 2
    world.put(queue, 1)
    for which in (query, run()):
        end = which.latest(start)
        assert (offsets(end), SourceOffset.from_json(end).starts) == ({queue: 11}, {})
        assert end["firsts"] == {"orders": {"broker-a": {"0": 5}}}


def test_a_topic_found_empty_and_filled_since_is_not_lost_twice(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    query = run(startingOffsets="earliest", failOnDataLoss="false")
    end = query.latest(query.driver.initial_offset())
    world.delete("orders")
    world.create("orders", 1)
    query.now_ms += 1_000
    end = query.until(end, lambda end: offsets(end) == {queue: 0})
    world.put(queue, 3)
    end = query.latest(end)
    assert offsets(end) == {queue: 3}
    world.put(queue, 1)
    end = run().latest(end)
    assert (offsets(end), SourceOffset.from_json(end).starts) == ({queue: 4}, {})


def test_a_deleted_topic_differs_from_a_missing_broker(world: FakeWorld, run: Run) -> None:
    (queue,) = world.create("orders", 1)
    world.create("bills", 1)
    world.put(queue, 5)
    start = SourceOffset({queue: 3}).to_json()
    world.delete("orders")
    world.brokers_away.add("broker-a")
    assert run().latest(start) == start
    world.brokers_away.clear()
    with pytest.raises(DataLossError) as failure:
        run().latest(start)
    assert failure.value.loss.reason is LossReason.TOPIC_DELETED
    assert run(failOnDataLoss="false").latest(start) == start


def test_a_broker_that_came_back_since_its_topic_was_missed_has_brought_it_along(
    world: FakeWorld, run: Run
) -> None:
    (queue,) = world.create("orders", 1)
    world.create("bills", 1)
    world.put(queue, 5)
    start = SourceOffset({queue: 3}).to_json()
    # As after a quick restart: no route yet when it is looked for, listed when that is checked.
    held = world.queues.pop(queue)
    query = run()
    assert query.latest(start) == start
    world.queues[queue] = held
    assert query.until(start, lambda end: offsets(end) == {queue: 5})


def test_a_deletion_while_running_is_reported_with_what_was_unread(
    world: FakeWorld, run: Run
) -> None:
    (queue,) = world.create("orders", 1)
    world.create("bills", 1)
    world.put(queue, 50)
    query = run(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    start = query.latest(query.driver.initial_offset())
    world.delete("orders")
    with pytest.raises(DataLossError, match=r"TOPIC_DELETED\].*40 messages are gone"):
        query.until(start, lambda _: False)


def test_a_removed_queue_is_a_loss_only_if_it_was_not_read(world: FakeWorld, run: Run) -> None:
    a, b = world.create("orders", 2)
    world.put(b, 5)
    query = run(startingOffsets="earliest", maxOffsetsPerTrigger="2")
    start = query.latest(query.driver.initial_offset())
    del world.queues[b]
    with pytest.raises(DataLossError, match=r"QUEUE_REMOVED\].*3 messages are gone"):
        query.until(start, lambda _: False)
    world.queues[b] = type(world.queues[a])()
    world.put(b, 5)
    query = run(startingOffsets="earliest")
    start = query.latest(query.driver.initial_offset())
    del world.queues[b]
    world.put(a, 1)
    assert offsets(query.until(start, lambda end: offsets(end)[a] == 1)) == {a: 1, b: 5}


def test_an_unavailable_broker_is_logged_once_and_so_is_its_return(
    world: FakeWorld, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = world.create("orders", 1) + world.create("orders", 1, "broker-b")
    query = run(startingOffsets="earliest", retry__outageMs="30s")
    start = query.latest(query.driver.initial_offset())
    world.brokers_away.add("broker-b")
    caplog.clear()
    for count in range(1, 4):
        world.put(a, 1)
        start = query.latest(start)
        assert offsets(start) == {a: count, b: 0}
    (line,) = caplog.messages
    assert line.startswith("broker-b does not answer")
    assert "up to 30 s (retry.outageMs)" in line
    world.brokers_away.clear()
    query.latest(start)
    assert caplog.messages[1:] == ["broker-b answers again"]


def test_an_unreachable_name_server_does_not_stop_a_running_query(
    world: FakeWorld, run: Run
) -> None:
    (queue,) = world.create("orders", 1)
    query = run(startingOffsets="earliest")
    start = query.driver.initial_offset()
    query.latest(start)
    world.name_server_away = True
    world.put(queue, 2)
    assert offsets(query.latest(start)) == {queue: 2}


@pytest.mark.parametrize("count", [60, 12])
@pytest.mark.parametrize("fails", [True, False])
def test_a_recreation_between_two_batches_of_available_now_is_found(
    world: FakeWorld, run: Run, fails: bool, count: int
) -> None:
    (queue,) = world.create("orders", 1)
    world.put(queue, 50)
    query = run(
        startingOffsets="earliest", maxOffsetsPerTrigger="10", failOnDataLoss=str(fails).lower()
    )
    query.driver.prepare_available_now()
    start = query.latest(query.driver.initial_offset())
    world.delete("orders")
    world.create("orders", 1)
    world.put(queue, count)
    query.now_ms += 1_000
    if fails:
        expected = rf"TOPIC_RECREATED\].*requested=10 available=\[0,{count}\)"
        with pytest.raises(DataLossError, match=expected):
            query.latest(start)
        return
    ranges = []
    while (end := query.latest(start)) != start:
        (task,) = query.driver.partitions(start, end)
        ranges += [(piece.start, piece.end) for piece in task.ranges]
        start = end
    ends = [*range(10, count, 10), count]
    assert ranges == list(zip([0, *ends], ends, strict=False))


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_messages_that_expired_before_their_queue_was_found_are_a_loss(
    world: FakeWorld, run: Run, caplog: pytest.LogCaptureFixture, fails: bool, restarts: bool
) -> None:
    (old,) = world.create("orders", 1)
    world.put(old, 5)
    options = {"startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    query = run(**options)
    end = query.latest(query.driver.initial_offset())
    _, new = world.create("orders", 2)
    world.put(new, 30)
    world.expire(new, 23)
    if restarts:
        query = run(**options)
    if fails:
        expected = r"OFFSET_EXPIRED\].*queue=1 requested=0 available=\[23,30\): 23 messages"
        with pytest.raises(DataLossError, match=expected):
            query.until(end, lambda _: False)
        return
    end = query.until(end, lambda found: new in offsets(found))
    assert (offsets(end)[new], SourceOffset.from_json(end).starts) == (30, {new: 23})
    assert "23 messages are gone" in caplog.text


def test_a_replica_that_lacks_first_messages_proves_no_loss_in_a_found_queue(
    world: FakeWorld, run: Run
) -> None:
    (old,) = world.create("orders", 1)
    world.put(old, 5)
    query = run(startingOffsets="earliest", retry__outageMs="30s")
    end = query.latest(query.driver.initial_offset())
    _, new = world.create("orders", 2)
    world.put(new, 30)
    first = world.queues[new].stored[:23]
    world.expire(new, 23)
    world.masters_away = True
    restarted = run(startingOffsets="earliest", retry__outageMs="30s")
    assert restarted.latest(end) == end
    # The master returns with all of them.
    world.queues[new].start = 0
    world.queues[new].stored[:0] = first
    world.masters_away = False
    end = restarted.until(end, lambda found: new in offsets(found))
    assert SourceOffset.from_json(end).starts == {new: 0}
