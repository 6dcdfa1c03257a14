"""The topic identity: a first store time or a first offset for each queue, kept until forgotten."""

from __future__ import annotations

from pyspark_rocketmq.planning.topic_identity import TopicIdentity
from rocketmq_wire.model import Bounds, QueueId

A, B = (QueueId("orders", "broker-a", index) for index in (0, 1))


def test_a_queue_is_known_by_its_first_store_time_and_later_by_its_first_offset() -> None:
    identity = TopicIdentity()
    identity.note(A, Bounds(0, 5), 77)
    assert (identity.first_store_time(A), identity.first_offset(A)) == (77, None)
    identity.note(A, Bounds(3, 5), None)
    assert (identity.first_store_time(A), identity.first_offset(A)) == (None, 3)
    identity.note(A, Bounds(4, 9), None)
    assert identity.written() == ({}, {A: 4})


def test_the_identity_of_a_queue_stands_until_it_is_forgotten() -> None:
    identity = TopicIdentity({A: 77}, {B: 4})
    identity.note(A, Bounds(0, 5), 99)
    identity.note(B, Bounds(0, 5), 99)
    identity.note(B, Bounds(2, 5), None)
    assert identity.written() == ({A: 77}, {B: 4})
    identity.forget(A)
    identity.forget(B)
    assert identity.written() == ({}, {})
    identity.note(A, Bounds(0, 5), 99)
    identity.note(B, Bounds(2, 5), None)
    assert identity.written() == ({A: 99}, {B: 2})


def test_a_replica_gives_the_first_store_time_but_not_the_first_offset() -> None:
    identity = TopicIdentity()
    identity.note(A, Bounds(3, 5, is_current=False), None)
    identity.note(B, Bounds(0, 5, is_current=False), 77)
    assert identity.written() == ({B: 77}, {})


def test_what_is_written_is_the_same_object_until_an_identity_changes() -> None:
    identity = TopicIdentity()
    identity.note(A, Bounds(3, 5), None)
    first_store_times, first_offsets = identity.written()
    identity.note(A, Bounds(3, 9), None)
    identity.forget(B)
    assert identity.written()[0] is first_store_times
    assert identity.written()[1] is first_offsets
    identity.note(A, Bounds(4, 9), None)
    assert first_offsets == {A: 3}
    assert identity.written()[1] == {A: 4}
