"""Batch members on a broker, over sockets: a queue changes its owner between two batches."""

from __future__ import annotations

from rocketmq_client.consumer.batch_member import BatchMember
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_wire.model import QueueId
from support.consuming import Collector, Topic, settings_of, until


def taken(member: BatchMember, topic: Topic, count: int) -> dict[QueueId, int]:
    """Take `count` of the topic's queues once the member owns them."""
    found: dict[QueueId, int] = {}

    def are_there() -> bool:
        found.update({q: at for q, at in member.take().items() if q.topic == topic.name})
        return len(found) == count

    until(are_there)
    return found


def test_a_second_member_waits_for_the_commit_of_the_first(topic: Topic) -> None:
    topic.send(40)
    settings = settings_of(topic)
    one = BatchMember(topic.connection, settings, {}).start()
    two = BatchMember(topic.connection, settings, {})
    try:
        assert taken(one, topic, 4) == dict.fromkeys(topic.queues, 0)
        two.start()
        until(lambda: any(owned.is_leaving for owned in one._queues.owned.values()))
        assert two.take().keys() & {*topic.queues} == set()
        one.commit(dict.fromkeys(topic.queues, 10))
        theirs = taken(two, topic, 2)
        assert set(theirs.values()) == {10}, "it continues at the first member's offset"
        assert {*theirs, *taken(one, topic, 2)} == {*topic.queues}
    finally:
        one.close()
        two.close()


def test_the_remaining_member_takes_over_at_once(topic: Topic) -> None:
    topic.send(40)
    settings = settings_of(topic)
    one = BatchMember(topic.connection, settings, {}).start()
    taken(one, topic, 4)
    one.commit(dict.fromkeys(topic.queues, 7))
    # A concurrent consumer asks for no lock: it must not read its start before the commit.
    assert one.flush(10_000)
    listener = Collector()
    with PushConsumer(topic.connection, settings, listener) as consumer:
        until(lambda: sum(q.topic == topic.name for q in consumer.queues) == 2)
        one.close()
        until(lambda: sum(q.topic == topic.name for q in consumer.queues) == 4)
        listener.wait(12)
    assert sorted(m.queue_offset for m in listener.messages) == sorted([7, 8, 9] * 4)
    assert topic.committed(settings.group) == topic.ends()


def test_a_commit_is_stored_at_once(topic: Topic) -> None:
    topic.send(40)
    settings = settings_of(topic)
    member = BatchMember(topic.connection, settings, {}).start()
    try:
        taken(member, topic, 4)
        member.commit(dict.fromkeys(topic.queues, 10))
        assert member.flush(30_000)
        assert topic.committed(settings.group) == topic.ends()
    finally:
        member.close()
