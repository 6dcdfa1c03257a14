"""Compressed messages that inflate to more than a batch may take: all arrive, a part at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest

from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.consumer import pop as pop_consumer
from rocketmq_client.consumer.common import messages
from rocketmq_client.consumer.common.settings import ConsumerSettings, PopSettings
from rocketmq_client.consumer.pop import PopConsumer
from rocketmq_client.consumer.pull import PullConsumer
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_wire.records.record import FLAG_COMPRESSED
from rocketmq_wire.requests.groups import ConsumeMode, PutGroup
from rocketmq_wire.requests.messages import SendMessage
from support.consuming import Collector, Topic, settings_of

BODIES = [b"%03d" % number * 400 for number in range(12)]


@pytest.fixture
def cluster(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    for module in (messages, pop_consumer):
        monkeypatch.setattr(module, "INFLATED_BATCH_MAX", 3_000)
    with open_cluster(topic.connection) as cluster:
        for body in BODIES:
            send = SendMessage(
                "g", topic.queues[0], 0, zlib.compress(body), b"", sys_flag=FLAG_COMPRESSED
            )
            cluster.transport.call(send, timeout_ms=5_000)
        yield cluster


def test_a_pull_ends_where_its_bodies_are_too_much(cluster: Cluster, topic: Topic) -> None:
    del cluster
    found: list[bytes] = []
    offset, sizes = 0, []
    with PullConsumer(topic.connection, ConsumerSettings(f"g-{topic.name}")) as consumer:
        while offset < len(BODIES):
            result = consumer.pull(topic.queues[0], offset)
            found += [message.body for message in result.messages]
            sizes.append(len(result.messages))
            offset = result.next_begin
    assert found == BODIES
    assert sizes == [3] * 4


@pytest.mark.parametrize("mode", ConsumeMode)
def test_a_push_consumer_gets_all_of_them_once(
    cluster: Cluster, topic: Topic, mode: ConsumeMode
) -> None:
    group = f"g-{topic.name}"
    cluster.ask_masters(PutGroup({"groupName": group}))
    cluster.set_consume_mode(group, topic.name, mode)
    listener = Collector()
    settings = settings_of(topic, rebalance_ms=500)
    with PushConsumer(topic.connection, settings, listener, pop=PopSettings()):
        listener.wait(len(BODIES))
    assert sorted(listener.bodies) == BODIES


def test_pops_hand_out_the_rest_later(cluster: Cluster, topic: Topic) -> None:
    found: list[bytes] = []
    sizes = []
    with PopConsumer(cluster, f"g-{topic.name}", topic.name) as consumer:
        while len(found) < len(BODIES):
            popped = consumer.receive(wait_ms=5_000)
            assert popped
            assert not consumer.ack(popped)
            sizes.append(len(popped))
            found += [one.message.body for one in popped]
    assert found == BODIES
    assert max(sizes) == 3
