"""Queries that share a group: who reads what, what checkpoints hold, and what is repeated."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from pyspark_rocketmq.errors import DataLossError, OptionError
from pyspark_rocketmq.options.definition import Use
from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from rocketmq_wire.errors import TopicNotFoundError
from rocketmq_wire.model import QueueId
from support.group_member_queries import GroupWorld, JoinedQuery

BASE = {"nameServer": "h:1", "subscribe": "orders", "group": "g"}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_client.consumer.membership.owned_queues._CONSUME_WAIT_SECONDS", 0)
    monkeypatch.setattr("pyspark_rocketmq.stream.group_member.driver._FLUSH_MS", 0)


@pytest.fixture
def world() -> GroupWorld:
    world = GroupWorld(4)
    for queue in world.made:
        world.put(queue, 10)
    return world


def run_all(*queries: JoinedQuery) -> None:
    """Let every query read until nothing is left."""
    idle_rounds = 0
    for _ in range(400):
        is_idle = True
        for query in queries:
            query.balance()
            query.housekeep()
            if query.plan():
                query.finish()
                is_idle = False
        # Two rounds: in the first one may have let go what in the second another one gets.
        idle_rounds = idle_rounds + 1 if is_idle else 0
        if idle_rounds == 3:
            return
    raise AssertionError("they never come to rest")


def rows(*queries: JoinedQuery) -> Counter[tuple[QueueId, int]]:
    return sum((query.rows for query in queries), Counter())


def everything(world: GroupWorld) -> set[tuple[QueueId, int]]:
    return {(q, n) for q, held in world.queues.items() for n in range(held.bounds.end)}


def offsets(query: JoinedQuery) -> dict[QueueId, int]:
    return dict(SourceOffset.from_json(query.last).offsets)


def test_a_query_alone_owns_every_queue_and_its_ends_are_committed(world: GroupWorld) -> None:
    query = JoinedQuery(world, "a")
    query.start()
    assert offsets(query) == {}
    run_all(query)
    assert query.rows == Counter(dict.fromkeys(everything(world), 1))
    assert world.group_offsets == dict.fromkeys(world.made, 10)
    assert offsets(query) == dict.fromkeys(world.made, 10)


def test_two_queries_share_and_a_queue_goes_over_between_two_batches(world: GroupWorld) -> None:
    one, two = JoinedQuery(world, "a", maxOffsetsPerTrigger="8"), JoinedQuery(world, "b")
    one.start()
    assert one.plan()
    two.start()
    one.balance()
    assert not two.plan(), "the first one's batch is not durable yet"
    one.finish()
    run_all(one, two)
    assert rows(one, two) == Counter(dict.fromkeys(everything(world), 1))
    assert set(offsets(two)) == set(world.made[2:])
    assert two.rows, "it had something of its own"


def test_the_remaining_query_takes_over_from_one_that_stops(world: GroupWorld) -> None:
    one, two = JoinedQuery(world, "a"), JoinedQuery(world, "b")
    one.start()
    two.start()
    run_all(one, two)
    two.stop()
    for queue in world.made:
        world.put(queue, 5)
    run_all(one)
    assert rows(one, two) == Counter(dict.fromkeys(everything(world), 1))
    assert set(offsets(one)) == set(world.made)


def test_of_one_that_dies_only_the_batch_at_work_is_read_again(world: GroupWorld) -> None:
    one, two = JoinedQuery(world, "a"), JoinedQuery(world, "b", maxOffsetsPerTrigger="4")
    one.start()
    two.start()
    run_all(one, two)
    for queue in world.made:
        world.put(queue, 20)
    two.plan()
    at_work = {(p.queue, n) for p in two.ranges(two.durable) for n in range(p.start, p.end)}
    two.kill()
    run_all(one)
    assert rows(one, two) == Counter(dict.fromkeys(everything(world), 1))
    two.start()
    assert {row for row, count in rows(one, two).items() if count > 1} == at_work
    run_all(one, two)
    assert {row for row, count in rows(one, two).items() if count > 1} == at_work


def test_a_query_that_comes_back_alone_repeats_nothing(world: GroupWorld) -> None:
    query = JoinedQuery(world, "a", maxOffsetsPerTrigger="8")
    query.start()
    query.plan()
    query.finish()
    query.plan()
    query.kill()
    assert world.group_offsets == {}, "the second batch was never asked behind"
    query.start()
    run_all(query)
    assert query.rows == Counter(dict.fromkeys(everything(world), 1))


def test_what_another_member_read_of_a_queue_is_not_read_again(
    world: GroupWorld,
) -> None:
    one, two = JoinedQuery(world, "a"), JoinedQuery(world, "b")
    one.start()
    run_all(one)
    two.start()
    run_all(one, two)
    for queue in world.made:
        world.put(queue, 5)
    run_all(one, two)
    two.stop()
    run_all(one)
    for queue in world.made:
        world.put(queue, 5)
    run_all(one)
    assert rows(one, two) == Counter(dict.fromkeys(everything(world), 1))
    starts = SourceOffset.from_json(one.last).starts
    assert starts == dict.fromkeys(world.made[2:], 15), "the checkpoint says where"


def test_redeliveries_of_the_group_are_read_by_the_owner_of_their_queue(
    world: GroupWorld,
) -> None:
    (retry,) = world.create("%RETRY%g", 1)
    world.put(retry, 3)
    one, two = JoinedQuery(world, "a"), JoinedQuery(world, "b")
    one.start()
    two.start()
    run_all(one, two)
    assert rows(one, two) == Counter(dict.fromkeys(everything(world), 1))
    assert world.group_offsets[retry] == 3


def test_a_new_group_begins_at_the_end_by_default(world: GroupWorld) -> None:
    query = JoinedQuery(world, "a", startingOffsets="latest")
    query.start()
    run_all(query)
    world.put(world.made[0], 1)
    run_all(query)
    assert query.rows == Counter({(world.made[0], 10): 1})


def test_available_now_reads_what_was_there_when_the_member_gained_its_queues(
    world: GroupWorld,
) -> None:
    query = JoinedQuery(world, "a", maxOffsetsPerTrigger="16")
    query.start()
    assert query.driver is not None
    query.driver.prepare_available_now()
    assert query.plan()
    query.finish()
    for queue in world.made:
        world.put(queue, 100)
    while query.plan():
        query.finish()
    assert query.rows == Counter({(queue, n): 1 for queue in world.made for n in range(10)})


def test_expired_messages_are_a_loss_or_passed_over(world: GroupWorld) -> None:
    world.group_offsets.update(dict.fromkeys(world.made, 2))
    world.expire(world.made[0], 6)
    strict = JoinedQuery(world, "a")
    strict.start()
    with pytest.raises(DataLossError, match=r"OFFSET_EXPIRED\].*requested=2"):
        strict.plan()
    strict.kill()
    lenient = JoinedQuery(world, "b", failOnDataLoss="false")
    lenient.start()
    run_all(lenient)
    assert min(n for q, n in lenient.rows if q == world.made[0]) == 6


def test_without_committed_offsets_expired_messages_are_no_loss(world: GroupWorld) -> None:
    world.expire(world.made[0], 6)
    query = JoinedQuery(world, "a")
    query.start()
    run_all(query)
    assert min(n for q, n in query.rows if q == world.made[0]) == 6


def test_a_queue_cut_off_below_its_next_offset_is_a_loss(world: GroupWorld) -> None:
    query = JoinedQuery(world, "a")
    query.start()
    run_all(query)
    world.truncate(world.made[0], 4)
    with pytest.raises(DataLossError, match="TRUNCATED"):
        run_all(query)


def recreate(world: GroupWorld, count: int) -> None:
    """Delete the topic, and with it the group's progress, and fill a new one."""
    world.delete("orders")
    world.group_offsets.clear()
    for queue in world.create("orders", 4):
        world.put(queue, count)


@pytest.mark.parametrize("old_begin", [0, 3])
@pytest.mark.parametrize("stops", ["stop", "kill"])
def test_a_topic_recreated_and_refilled_while_a_query_is_stopped_is_a_loss(
    world: GroupWorld, old_begin: int, stops: str
) -> None:
    for queue in world.made:
        world.expire(queue, old_begin)
    query = JoinedQuery(world, "a")
    query.start()
    run_all(query)
    getattr(query, stops)()
    recreate(world, 25)
    query.start()
    with pytest.raises(DataLossError, match=r"TOPIC_RECREATED\] .*requested=10"):
        run_all(query)
    query.kill()
    lenient = JoinedQuery(world, "a", failOnDataLoss="false")
    lenient.logged, lenient.durable, lenient.initial = query.logged, query.durable, query.initial
    lenient.start()
    run_all(lenient)
    assert lenient.rows == Counter(dict.fromkeys(everything(world), 1))
    # From here on it knows the new one.
    lenient.kill()
    lenient.start()
    run_all(lenient)
    assert set(lenient.rows.values()) == {1}


def test_a_topic_that_is_the_same_is_not_taken_for_another_one(world: GroupWorld) -> None:
    one, two = JoinedQuery(world, "a"), JoinedQuery(world, "b")
    for query in (one, two):
        query.start()
    for _ in range(4):
        for number, queue in enumerate(world.made):
            world.put(queue, 5)
            world.expire(queue, number)
        run_all(one, two)
        one.stop()
        run_all(two)
        one.start()
        run_all(one, two)
    assert rows(one, two).keys() >= everything(world) - {
        (queue, n) for number, queue in enumerate(world.made) for n in range(number)
    }


def test_queues_of_an_unavailable_broker_wait_until_it_answers(world: GroupWorld) -> None:
    query = JoinedQuery(world, "a")
    query.start()
    query.plan()
    query.finish()
    world.put(world.made[0], 1)
    query.member._queues.owned[world.made[0]].process.lock_ms -= 31_000
    assert not query.plan(), "its lock is in doubt"
    query.housekeep()
    world.brokers_away.add("broker-a")
    query.balance()
    assert not query.plan()
    world.brokers_away.clear()
    run_all(query)
    assert query.rows == Counter(dict.fromkeys(everything(world), 1))


def test_a_topic_that_does_not_exist_is_an_error() -> None:
    query = JoinedQuery(GroupWorld(0), "a")
    query.start()
    with pytest.raises(TopicNotFoundError):
        query.plan()


def not_stored(query: JoinedQuery) -> set[tuple[QueueId, int]]:
    """What a query has read, or will again, beyond the group's progress."""
    progress = query.world.group_offsets
    return {
        (piece.queue, offset)
        for batch in range(len(query.logged))
        for piece in query.ranges(batch)
        for offset in range(max(piece.start, progress.get(piece.queue, 0)), piece.end)
    }


@pytest.mark.parametrize("seed", range(8))
def test_members_come_go_and_die_and_no_message_is_lost(seed: int) -> None:
    """Every message is read, and only those of a member that ended are repeated."""
    random_ = random.Random(seed)
    world = GroupWorld(random_.randint(1, 7))
    queries = [JoinedQuery(world, name, maxOffsetsPerTrigger="7") for name in "abcde"]
    may_repeat: set[tuple[QueueId, int]] = set()
    for _ in range(400):
        query = random_.choice(queries)
        world.put(random_.choice(world.made), random_.randint(1, 4))
        if query.driver is None:
            query.start()
            continue
        act = random_.random()
        if query.durable < len(query.logged) and act < 0.6:
            query.finish()
        elif act < 0.7:
            if query.durable == len(query.logged):
                query.plan()
        elif act < 0.8:
            query.balance()
        elif act < 0.9:
            query.housekeep()
        elif act < 0.96:
            # Its last batch is logged, and perhaps durable; but nothing was asked since.
            may_repeat |= not_stored(query)
            (query.stop if act < 0.93 else query.kill)()
    for query in queries:
        if query.driver is None:
            query.start()
        if query.durable < len(query.logged):
            query.finish()
    run_all(*queries)
    found = rows(*queries)
    assert set(found) == everything(world), f"seed {seed}"
    repeated = {row for row, count in found.items() if count > 1}
    assert repeated <= may_repeat, f"seed {seed}: {sorted(repeated - may_repeat)[:5]}"
    owned = [query.member._queues.owned.keys() for query in queries]
    assert sum(map(len, owned)) == len(world.made), "at rest every queue has one owner"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"commitOffsets": "confirmed"}, "= confirmed excludes joinGroup"),
        ({"commitOffsets": "false"}, "= false excludes joinGroup"),
        ({"startingOffsets": '{"orders":{"0":1}}'}, "cannot name queues"),
        ({"startingOffsets": "group:error"}, "= group:error excludes joinGroup"),
        ({"group": ""}, "must not be empty"),
    ],
)
def test_what_does_not_go_with_sharing_is_refused(options: dict[str, str], reason: str) -> None:
    raw = {**BASE, "joinGroup": "true", **options}
    with pytest.raises(OptionError, match=reason):
        read_options(raw, Use.STREAM)


def test_sharing_needs_a_group_name_servers_and_whole_topics() -> None:
    raw = {"endpoints": "h:1", "subscribe": "orders", "group": "g", "joinGroup": "true"}
    with pytest.raises(OptionError, match="needs 'nameServer'"):
        read_options(raw, Use.STREAM)
    raw = {"nameServer": "h:1", "subscribe": "orders", "joinGroup": "true"}
    with pytest.raises(OptionError, match="needs the option 'group'"):
        read_options(raw, Use.STREAM)
    raw = {"nameServer": "h:1", "assign": '{"orders":[0]}', "group": "g", "joinGroup": "true"}
    with pytest.raises(OptionError, match="needs 'subscribe'"):
        read_options(raw, Use.STREAM)
    raw = {**BASE, "allocateStrategy": "AVG"}
    with pytest.raises(OptionError, match="no effect without joinGroup"):
        read_options(raw, Use.STREAM)
