"""Seats on a broker, over sockets: queues go from one to the other between two batches."""

from __future__ import annotations

from rocketmq_client.consumer.batch_member import BatchMember
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_wire.model import QueueId
from support.consuming import Collector, Topic, settings_of, until


def taken(seat: BatchMember, topic: Topic, count: int) -> dict[QueueId, int]:
    """So many of the topic's queues, once the seat has them; where they go on."""
    found: dict[QueueId, int] = {}

    def are_there() -> bool:
        found.update({q: at for q, at in seat.take().items() if q.topic == topic.name})
        return len(found) == count

    until(are_there)
    return found


def test_a_second_seat_waits_until_the_first_ones_batch_is_settled(topic: Topic) -> None:
    topic.send(40)
    settings = settings_of(topic)
    one = BatchMember(topic.connection, settings).start({})
    two = BatchMember(topic.connection, settings)
    try:
        assert taken(one, topic, 4) == dict.fromkeys(topic.queues, 0)
        two.start({})
        until(lambda: any(owned.is_leaving for owned in one._queues.owned.values()))
        assert two.take().keys() & {*topic.queues} == set()
        one.commit(dict.fromkeys(topic.queues, 10))
        theirs = taken(two, topic, 2)
        assert set(theirs.values()) == {10}, "it goes on where the first one was"
        assert {*theirs, *taken(one, topic, 2)} == {*topic.queues}
    finally:
        one.close()
        two.close()


def test_whoever_stays_takes_over_at_once_from_a_seat_that_leaves(topic: Topic) -> None:
    topic.send(40)
    settings = settings_of(topic)
    one = BatchMember(topic.connection, settings).start({})
    taken(one, topic, 4)
    one.commit(dict.fromkeys(topic.queues, 7))
    listener = Collector()
    with PushConsumer(topic.connection, settings, listener) as consumer:
        until(lambda: sum(q.topic == topic.name for q in consumer.queues) == 2)
        one.close()
        until(lambda: sum(q.topic == topic.name for q in consumer.queues) == 4)
        listener.wait(12)
    assert sorted(m.queue_offset for m in listener.messages) == sorted([7, 8, 9] * 4)
    assert topic.committed(settings.group) == topic.ends()


def test_what_was_settled_is_stored_at_once(topic: Topic) -> None:
    topic.send(40)
    settings = settings_of(topic)
    seat = BatchMember(topic.connection, settings).start({})
    try:
        taken(seat, topic, 4)
        seat.commit(dict.fromkeys(topic.queues, 10))
        assert seat.flush(30_000)
        assert topic.committed(settings.group) == topic.ends()
    finally:
        seat.close()
