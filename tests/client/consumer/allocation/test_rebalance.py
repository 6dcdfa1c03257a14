"""Gained and lost queues."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client.consumer.allocation.rebalance import Change, change_between, rebalance
from rocketmq_client.consumer.allocation.strategies import Average
from rocketmq_wire.model import QueueId

QUEUES = [QueueId("T", "a", index) for index in range(10)]


def test_a_new_member_takes_its_share_from_the_others() -> None:
    change = rebalance(
        Average(), own_id="c1", members=["c1", "c2"], queues=QUEUES[:4], current=set(QUEUES[:4])
    )
    assert change == Change(gained=(), lost=(QUEUES[2], QUEUES[3]))


def test_the_first_member_gains_everything() -> None:
    change = rebalance(Average(), own_id="c1", members=["c1"], queues=QUEUES[:2], current=())
    assert change == Change(gained=(QUEUES[0], QUEUES[1]), lost=())


def test_whoever_left_the_group_loses_everything() -> None:
    change = rebalance(
        Average(), own_id="c1", members=["c2"], queues=QUEUES[:2], current={QUEUES[1]}
    )
    assert change == Change(gained=(), lost=(QUEUES[1],))


def test_a_broker_that_knows_no_member_changes_nothing() -> None:
    change = rebalance(Average(), own_id="c1", members=[], queues=QUEUES, current={QUEUES[1]})
    assert change.is_empty


def test_queues_that_are_gone_are_lost() -> None:
    change = rebalance(
        Average(), own_id="c1", members=["c1"], queues=QUEUES[:1], current=set(QUEUES[:3])
    )
    assert change.lost == (QUEUES[1], QUEUES[2])


@given(st.sets(st.sampled_from(QUEUES)), st.sets(st.sampled_from(QUEUES)))
def test_a_change_leads_from_what_is_owned_to_what_is_wanted(
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
    queues = QUEUES[:queue_count]
    owned: dict[str, set[QueueId]] = {f"c{index}": set() for index in range(5)}
    for count in (before, after):
        members = [f"c{index}" for index in range(count)]
        for client_id, held in owned.items():
            change = rebalance(
                Average(), own_id=client_id, members=members, queues=queues, current=held
            )
            held -= set(change.lost)
            held |= set(change.gained)
    assert sorted(queue for held in owned.values() for queue in held) == queues
