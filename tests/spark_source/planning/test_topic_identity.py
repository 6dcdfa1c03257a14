"""What tells a queue from one of a topic created anew: one mark each, kept until it is judged."""

from __future__ import annotations

from pyspark_rocketmq.planning.topic_identity import TopicIdentity
from rocketmq_wire.model import Bounds, QueueId

A, B = (QueueId("orders", "broker-a", index) for index in (0, 1))


def test_a_queue_is_marked_by_its_birth_and_later_by_where_it_begins() -> None:
    marks = TopicIdentity()
    marks.note(A, Bounds(0, 5), 77)
    assert (marks.birth(A), marks.first(A)) == (77, None)
    marks.note(A, Bounds(3, 5), None)
    assert (marks.birth(A), marks.first(A)) == (None, 3)
    marks.note(A, Bounds(4, 9), None)
    assert marks.written() == ({}, {A: 4})


def test_a_mark_stands_until_it_is_forgotten() -> None:
    marks = TopicIdentity({A: 77}, {B: 4})
    marks.note(A, Bounds(0, 5), 99)
    marks.note(B, Bounds(0, 5), 99)
    marks.note(B, Bounds(2, 5), None)
    assert marks.written() == ({A: 77}, {B: 4})
    marks.forget(A)
    marks.forget(B)
    assert marks.written() == ({}, {})
    marks.note(A, Bounds(0, 5), 99)
    marks.note(B, Bounds(2, 5), None)
    assert marks.written() == ({A: 99}, {B: 2})


def test_a_replica_says_when_a_queue_was_born_and_not_where_it_begins() -> None:
    marks = TopicIdentity()
    marks.note(A, Bounds(3, 5, is_current=False), None)
    marks.note(B, Bounds(0, 5, is_current=False), 77)
    assert marks.written() == ({B: 77}, {})


def test_what_is_written_is_the_same_object_until_a_mark_changes() -> None:
    marks = TopicIdentity()
    marks.note(A, Bounds(3, 5), None)
    births, firsts = marks.written()
    marks.note(A, Bounds(3, 9), None)
    marks.forget(B)
    assert marks.written()[0] is births
    assert marks.written()[1] is firsts
    marks.note(A, Bounds(4, 9), None)
    assert firsts == {A: 3}
    assert marks.written()[1] == {A: 4}
