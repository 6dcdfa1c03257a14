"""Members of a group without committed offsets that start at a timestamp, on the bundled broker."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.stream.group_member.driver import open_batch_member
from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.batch_member import BatchMember
from rocketmq_client.consumer.common.settings import ConsumeFrom
from rocketmq_client.consumer.lite_pull import LitePullConsumer
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_wire.model import QueueId
from support.consuming import Collector, Topic, settings_of, until

BEFORE, SINCE = 20, 8


@pytest.fixture
def time_ms(topic: Topic) -> int:
    """A time between the first messages and the later ones, by this machine's clock."""
    topic.send(BEFORE, prefix="before")
    last_ms = time.time_ns() // 1_000_000
    until(lambda: time.time_ns() // 1_000_000 > last_ms + 1)
    time_ms = time.time_ns() // 1_000_000
    topic.send(SINCE, prefix="since")
    return time_ms


def each_at(topic: Topic, offset: int) -> dict[QueueId, int]:
    return dict.fromkeys(topic.queues, offset)


def by_time(time_ms: int | None) -> dict[str, Any]:
    return {"consume_from": ConsumeFrom.TIMESTAMP, "consume_timestamp_ms": time_ms}


def test_a_listener_gets_messages_stored_after_the_timestamp(topic: Topic, time_ms: int) -> None:
    listener = Collector()
    settings = settings_of(topic, persist_ms=50, **by_time(time_ms))
    with PushConsumer(topic.connection, settings, listener):
        listener.wait(SINCE)
        until(lambda: topic.committed(settings.group) == topic.ends())
    assert sorted(listener.bodies) == sorted(b"since%d" % n for n in range(SINCE))


def test_without_a_time_a_listener_gets_the_last_half_hour(topic: Topic, time_ms: int) -> None:
    del time_ms
    listener = Collector()
    with PushConsumer(topic.connection, settings_of(topic, **by_time(None)), listener):
        listener.wait(BEFORE + SINCE)
    assert len(listener.bodies) == BEFORE + SINCE


def test_a_committed_offset_precedes_the_timestamp(topic: Topic, time_ms: int) -> None:
    settings = settings_of(topic, **by_time(time_ms))
    with open_cluster(topic.connection) as cluster:
        cluster.commit(settings.group, each_at(topic, 3))
    with LitePullConsumer(topic.connection, settings) as consumer:
        until(lambda: consumer.consumed_offsets == each_at(topic, 3))


def test_a_query_that_joins_a_group_begins_at_its_starting_timestamp(
    topic: Topic, time_ms: int
) -> None:
    raw = {"nameServer": topic.connection.name_servers[0], "subscribe": topic.name}
    raw |= {"group": f"g-{topic.name}", "joinGroup": "true", "startingTimestamp": str(time_ms)}
    member: BatchMember = open_batch_member(topic.connection, read_options(raw), {})
    try:
        assert member.wait_for_queues(30_000)
        found: dict[QueueId, int] = {}
        until(lambda: bool(found.update(member.take())) or topic_offsets(found, topic) != {})
        assert topic_offsets(found, topic) == each_at(topic, BEFORE // len(topic.queues))
    finally:
        member.close()


def topic_offsets(found: dict[QueueId, int], topic: Topic) -> dict[QueueId, int]:
    """The offsets of the topic's queues once all are owned, without the retry topic's."""
    own = {queue: offset for queue, offset in found.items() if queue.topic == topic.name}
    return own if len(own) == len(topic.queues) else {}
