"""Consumer groups on unmodified RocketMQ: our members alone, and beside a Java member."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import client.consumer.test_orderly_push as in_order
import client.consumer.test_push as ours
from real.adoption import adopt
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_client.settings import ConnectionSettings
from support.consuming import Collector, Topic, settings_of, until
from support.real_cluster import RealCluster

_MEMBER = Path(__file__).parent / "java" / "Member.java"
_SECONDS = 25

globals().update(
    adopt(
        ours,
        without={
            "test_an_incomplete_consumer_is_refused": "no broker takes part in it",
            "test_no_thread_is_left_behind": "no broker takes part in it",
        },
        short=(
            "test_two_members_share_the_queues_and_the_one_left_takes_over",
            "test_a_message_that_always_fails_becomes_a_dead_letter",
        ),
    )
)
globals().update(
    adopt(
        in_order,
        without={},
        short=("test_in_order_each_queue_is_consumed_in_order_also_over_failures",),
    )
)


@pytest.fixture
def connection(broker: RealCluster) -> ConnectionSettings:
    return broker.settings


@pytest.fixture
def topic(connection: ConnectionSettings, request: pytest.FixtureRequest) -> Topic:
    return Topic(connection, f"t{abs(hash(request.node.name))}")


def test_a_java_member_shares_the_queues_and_no_message_is_lost(
    broker: RealCluster, topic: Topic
) -> None:
    settings = settings_of(topic)
    listener = Collector()
    printed: list[str] = []

    def run_java() -> None:
        arguments = (topic.name, settings.group, str(_SECONDS))
        printed.append(broker.java(_MEMBER, *arguments, seconds=120))

    def owned() -> int:
        return sum(queue.topic == topic.name for queue in consumer.queues)

    with PushConsumer(topic.connection, settings, listener) as consumer:
        until(lambda: owned() == 4)
        java = threading.Thread(target=run_java, name="java-member")
        java.start()
        until(lambda: owned() == 2 or not java.is_alive())
        bodies = topic.send(200)
        java.join(150)
        # It has left: its queues, and whatever it had not stored, come here.
        until(lambda: owned() == 4)
        more = topic.send(40, prefix="more")
        until(lambda: {*more} <= {*listener.bodies})
    theirs = [line.split()[1].encode() for line in printed[0].splitlines() if "GOT " in line]
    assert {*theirs, *listener.bodies} == {*bodies, *more}
    assert len(theirs) == 100, "the Java member has half of the queues"
    assert len(theirs) + len(listener.bodies) == 240, "nothing is consumed twice"


def test_tools_see_what_a_member_does(broker: RealCluster, topic: Topic) -> None:
    topic.send(40)
    settings = settings_of(topic, persist_ms=50)
    listener = Collector()
    with PushConsumer(topic.connection, settings, listener) as consumer:
        listener.wait(40)
        client_id = consumer.client_id
        shown = broker.admin("consumerStatus", "-g", settings.group, "-i", client_id)
    assert "PROP_CONSUME_TYPE" in shown
    assert shown.count(f"{topic.name} ") >= 4, shown


def test_tools_have_a_message_consumed_by_a_member(broker: RealCluster, topic: Topic) -> None:
    topic.send(4)
    settings = settings_of(topic)
    listener = Collector()
    with PushConsumer(topic.connection, settings, listener) as consumer:
        listener.wait(4)
        message = listener.messages[0]
        shown = broker.admin(
            *("queryMsgById", "-g", settings.group, "-d", consumer.client_id),
            *("-i", message.offset_message_id),
            *(() if broker.is_4 else ("-t", topic.name)),
        )
        listener.wait(5)
    assert "CR_SUCCESS" in shown
    assert listener.bodies.count(message.body) == 2


def test_a_reset_by_tools_reaches_members_at_work(broker: RealCluster, topic: Topic) -> None:
    topic.send(40)
    settings = settings_of(topic, persist_ms=50)
    listener = Collector()
    with PushConsumer(topic.connection, settings, listener):
        listener.wait(40)
        until(lambda: topic.committed(settings.group) == topic.ends())
        broker.admin(
            *("resetOffsetByTime", "-g", settings.group, "-t", topic.name),
            *("-s", "1000000000000"),
        )
        listener.wait(80)
    assert len(listener.messages) == 80
    assert topic.committed(settings.group) == topic.ends()
