"""The six strategies against the vectors of RocketMQ's own code, and rebalance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client.consumer.allocation import (
    Average,
    AverageByCircle,
    ByConfiguration,
    ByMachineRoom,
    Change,
    ConsistentHash,
    NearbyMachineRoom,
    Strategy,
    allocate,
    change_between,
    java_text,
    rebalance,
    ring_hash,
)
from rocketmq_wire.model import QueueId

TWO_BROKERS = [QueueId("TopicTest", f"broker-{name}", i) for name in "ab" for i in range(4)]
THREE_CLIENTS = ["c1", "c2", "c3"]


def shares(strategy: Strategy, queues: list[QueueId], clients: list[str]) -> dict[str, str]:
    """Every member's share, written as in RocketMQ's vectors: last letter of the broker, number."""
    return {
        client: " ".join(
            f"{queue.broker[-1]}{queue.index}"
            for queue in allocate(strategy, client, queues, clients)
        )
        for client in clients
    }


def test_average_gives_contiguous_shares() -> None:
    assert shares(Average(), TWO_BROKERS, THREE_CLIENTS) == {
        "c1": "a0 a1 a2",
        "c2": "a3 b0 b1",
        "c3": "b2 b3",
    }


def test_average_by_circle_gives_turns() -> None:
    assert shares(AverageByCircle(), TWO_BROKERS, THREE_CLIENTS) == {
        "c1": "a0 a3 b2",
        "c2": "a1 b0 b3",
        "c3": "a2 b1",
    }


def test_consistent_hash_allocates_queues_as_java_does() -> None:
    assert shares(ConsistentHash(), TWO_BROKERS, THREE_CLIENTS) == {
        "c1": "a0 b3",
        "c2": "a1 b0 b1",
        "c3": "a2 a3 b2",
    }


def test_a_hash_on_the_ring_is_the_start_of_an_md5() -> None:
    assert ring_hash("c1-0") == 3_886_541_579


def test_a_queue_is_hashed_by_its_java_text() -> None:
    text = "MessageQueue [topic=TopicTest, brokerName=broker-a, queueId=0]"
    assert java_text(TWO_BROKERS[0]) == text


def test_with_more_members_than_queues_the_last_members_get_none() -> None:
    queues = [QueueId("T", "broker-a", index) for index in range(3)]
    assert shares(Average(), queues, ["c1", "c2", "c3", "c4", "c5"]) == {
        "c1": "a0",
        "c2": "a1",
        "c3": "a2",
        "c4": "",
        "c5": "",
    }


def test_a_machine_rooms_rest_follows_behind_the_blocks() -> None:
    queues = [QueueId("T", "hz@a", index) for index in range(5)]
    other = [QueueId("T", name, 0) for name in ("sh@a", "a", "hz@a@b")]
    found = shares(ByMachineRoom(frozenset({"hz"})), [*queues, *other], THREE_CLIENTS)
    assert found == {"c1": "a0 a3", "c2": "a1 a4", "c3": "a2"}


def test_a_configured_list_is_taken_as_it_is() -> None:
    mine = (TWO_BROKERS[5], TWO_BROKERS[1])
    assert allocate(ByConfiguration(mine), "c1", TWO_BROKERS, THREE_CLIENTS) == mine


def _room(name: str) -> str:
    return name.partition("-")[0]


def test_nearby_rooms_serve_their_own_queues_and_share_rooms_without_members() -> None:
    queues = [QueueId("T", f"{room}-x", i) for room in ("r1", "r2", "r3") for i in range(4)]
    strategy = NearbyMachineRoom(Average(), _room, _room)
    clients = ["r1-c1", "r1-c2", "r2-c1"]
    found = {
        c: [(q.broker, q.index) for q in allocate(strategy, c, queues, clients)] for c in clients
    }
    assert found == {
        "r1-c1": [("r1-x", 0), ("r1-x", 1), ("r3-x", 0), ("r3-x", 1)],
        "r1-c2": [("r1-x", 2), ("r1-x", 3), ("r3-x", 2)],
        "r2-c1": [("r2-x", 0), ("r2-x", 1), ("r2-x", 2), ("r2-x", 3), ("r3-x", 3)],
    }


def test_names_are_rocketmqs() -> None:
    strategies: list[Strategy] = [
        Average(),
        AverageByCircle(),
        ByConfiguration(()),
        ByMachineRoom(frozenset()),
        ConsistentHash(),
        NearbyMachineRoom(Average(), _room, _room),
    ]
    assert [strategy.name for strategy in strategies] == [
        "AVG",
        "AVG_BY_CIRCLE",
        "CONFIG",
        "MACHINE_ROOM",
        "CONSISTENT_HASH",
        "MACHINE_ROOM_NEARBY-AVG",
    ]


def test_who_is_not_a_member_gets_nothing() -> None:
    assert allocate(Average(), "c9", TWO_BROKERS, THREE_CLIENTS) == ()


def test_ids_sort_by_utf16_units_as_in_java() -> None:
    # U+FF5E is one unit above the surrogates that U+1F600 is made of.
    queues = [QueueId("T", "a", 0), QueueId("T", "a", 1)]
    clients = ["\uff5e", "\U0001f600"]
    assert allocate(Average(), "\U0001f600", queues, clients) == (queues[0],)


def test_a_ring_needs_a_node() -> None:
    with pytest.raises(ValueError, match="virtual_nodes must be at least 1, got 0"):
        ConsistentHash(virtual_nodes=0)


QUEUES = st.lists(
    st.builds(
        QueueId,
        st.sampled_from(("T", "U")),
        st.sampled_from(("r1-a", "r1-b", "r2-a", "r3-a")),
        st.integers(0, 9),
    ),
    max_size=40,
)
CLIENTS = st.lists(
    st.sampled_from([f"r{r}-c{i}" for r in range(1, 4) for i in range(6)]), min_size=1
)
WHOLE = st.sampled_from(
    (
        Average(),
        AverageByCircle(),
        ConsistentHash(),
        NearbyMachineRoom(Average(), _room, _room),
        NearbyMachineRoom(AverageByCircle(), _room, _room),
        NearbyMachineRoom(ConsistentHash(), _room, _room),
    )
)


@given(WHOLE, QUEUES, CLIENTS)
def test_every_queue_belongs_to_exactly_one_member(
    strategy: Strategy, queues: list[QueueId], clients: list[str]
) -> None:
    owned = [q for client in set(clients) for q in allocate(strategy, client, queues, clients)]
    assert sorted(owned) == sorted(set(queues))


@given(QUEUES, CLIENTS)
def test_a_rooms_queues_belong_to_exactly_one_member(
    queues: list[QueueId], clients: list[str]
) -> None:
    rooms = [QueueId(q.topic, q.broker.replace("-", "@"), q.index) for q in queues]
    strategy = ByMachineRoom(frozenset({"r1", "r3"}))
    owned = [q for client in set(clients) for q in allocate(strategy, client, rooms, clients)]
    assert sorted(owned) == sorted({q for q in rooms if not q.broker.startswith("r2")})


@given(st.sampled_from((Average(), AverageByCircle())), QUEUES, CLIENTS)
def test_average_shares_differ_by_one_queue_at_most(
    strategy: Strategy, queues: list[QueueId], clients: list[str]
) -> None:
    sizes = [len(allocate(strategy, client, queues, clients)) for client in set(clients)]
    assert max(sizes) - min(sizes) <= 1


@given(QUEUES, CLIENTS)
def test_on_the_ring_a_leaving_member_moves_only_its_own_queues(
    queues: list[QueueId], clients: list[str]
) -> None:
    gone, left = clients[0], [client for client in clients if client != clients[0]]
    for client in set(left):
        before = allocate(ConsistentHash(), client, queues, [*left, gone])
        assert set(before) <= set(allocate(ConsistentHash(), client, queues, left))


TEN = [QueueId("T", "a", index) for index in range(10)]


def test_a_new_member_takes_its_share_from_the_others() -> None:
    change = rebalance(
        Average(),
        own_id="c1",
        members=["c1", "c2"],
        queues=TEN[:4],
        current=set(TEN[:4]),
    )
    assert change == Change(gained=(), lost=(TEN[2], TEN[3]))


def test_the_first_member_gains_everything() -> None:
    change = rebalance(Average(), own_id="c1", members=["c1"], queues=TEN[:2], current=())
    assert change == Change(gained=(TEN[0], TEN[1]), lost=())


def test_a_member_that_left_the_group_loses_all_queues() -> None:
    change = rebalance(Average(), own_id="c1", members=["c2"], queues=TEN[:2], current={TEN[1]})
    assert change == Change(gained=(), lost=(TEN[1],))


def test_a_broker_that_knows_no_member_changes_nothing() -> None:
    change = rebalance(Average(), own_id="c1", members=[], queues=TEN, current={TEN[1]})
    assert change.is_empty


def test_deleted_queues_are_lost() -> None:
    change = rebalance(Average(), own_id="c1", members=["c1"], queues=TEN[:1], current=set(TEN[:3]))
    assert change.lost == (TEN[1], TEN[2])


@given(st.sets(st.sampled_from(TEN)), st.sets(st.sampled_from(TEN)))
def test_a_change_leads_from_owned_to_wanted_queues(
    current: set[QueueId], wanted: set[QueueId]
) -> None:
    change = change_between(current, wanted)
    assert (current - set(change.lost)) | set(change.gained) == wanted
    assert set(change.lost) <= current
    assert not set(change.gained) & current


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 10))
def test_after_any_change_of_members_every_queue_has_one_owner(
    before: int, after: int, queue_count: int
) -> None:
    queues = TEN[:queue_count]
    owned: dict[str, set[QueueId]] = {f"c{index}": set() for index in range(5)}
    for count in (before, after):
        members = [f"c{index}" for index in range(count)]
        for client_id, share in owned.items():
            change = rebalance(
                Average(), own_id=client_id, members=members, queues=queues, current=share
            )
            share -= set(change.lost)
            share |= set(change.gained)
    assert sorted(queue for share in owned.values() for queue in share) == queues
