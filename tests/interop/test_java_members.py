"""Java members of a group on the bundled broker: alone with retries and locks, and beside ours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.common.listener import OrderlyStatus
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_client.settings import ConnectionSettings
from support.consuming import Collector, Topic, settings_of, until
from support.real_cluster import VERSIONS, fetch_jars, run_admin, run_program

_MEMBER = Path(__file__).parents[1] / "real" / "java" / "Member.java"
pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def connection() -> Iterator[ConnectionSettings]:
    with Broker(config_from({"flush": "memory", "grpc": False})) as broker:
        yield ConnectionSettings(name_servers=(broker.name_server,))


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    fetch_jars(request.param)
    return str(request.param)


@pytest.fixture
def topic(connection: ConnectionSettings, request: pytest.FixtureRequest) -> Topic:
    return Topic(connection, f"t{abs(hash(request.node.name))}")


def java_member(version: str, topic: Topic, seconds: int, *mode: str) -> list[list[str]]:
    """What a Java member of the topic's usual group got: body, attempt, topic, queue, offset."""
    (name_server,) = topic.connection.name_servers
    group = settings_of(topic).group
    arguments = (name_server, topic.name, group, str(seconds), *mode)
    printed = run_program(version, _MEMBER, *arguments, seconds=seconds + 90)
    return [line.split()[1:] for line in printed.splitlines() if line.startswith("GOT ")]


@pytest.mark.long
def test_what_fails_at_a_java_member_comes_again_after_ten_seconds(
    version: str, topic: Topic
) -> None:
    bodies = topic.send(20)
    # It may ask for the retry topic's route before its own heartbeat creates the topic. It asks
    # again after 30 seconds, and its next rebalance comes 20 seconds later.
    got = java_member(version, topic, 90, "later", "40")
    assert {name for _, _, name, *_ in got} == {topic.name}
    for attempt in ("0", "1"):
        found = [body.encode() for body, attempts, *_ in got if attempts == attempt]
        assert sorted(found) == sorted(bodies)


def test_an_orderly_java_member_locks_and_consumes_in_order(version: str, topic: Topic) -> None:
    topic.send(80)
    got = java_member(version, topic, 30, "orderly", "80")
    by_queue: dict[str, list[int]] = {}
    for *_, queue, offset in got:
        by_queue.setdefault(queue, []).append(int(offset))
    assert by_queue == {str(index): list(range(20)) for index in range(4)}
    settings = settings_of(topic)
    # Its locks were given back at its end: a member of ours need not wait a minute for them.
    listener = Collector(lambda *_: OrderlyStatus.SUCCESS)
    with PushConsumer(topic.connection, settings, orderly_listener=listener):
        more = topic.send(4, prefix="more")
        listener.wait(4)
    assert sorted(listener.bodies) == sorted(more)


@pytest.mark.long
def test_a_reset_by_a_tool_reaches_a_java_member_that_is_online(version: str, topic: Topic) -> None:
    bodies = topic.send(20)
    got: list[list[str]] = []
    java = threading.Thread(target=lambda: got.extend(java_member(version, topic, 90, "", "40")))
    java.start()
    (name_server,) = topic.connection.name_servers
    group = settings_of(topic).group

    def stored() -> int:
        with open_cluster(topic.connection) as cluster:
            stats = cluster.group_stats(group, topic.name)
        return sum(stats[queue].consumer_offset for queue in topic.queues if queue in stats)

    until(lambda: stored() == 20 or not java.is_alive())
    # Offsets are stored every five seconds; what is stored later must not undo the reset.
    command = ("resetOffsetByTime", "-g", group, "-t", topic.name)
    run_admin(version, name_server, *command, "-s", "2026-01-01#00:00:00:000", "-f", "true")
    java.join(150)
    assert sorted(body.encode() for body, *_ in got) == sorted(bodies * 2)


def test_ours_and_a_java_member_share_the_queues(version: str, topic: Topic) -> None:
    listener = Collector()
    theirs: list[list[str]] = []

    def owned() -> int:
        return sum(queue.topic == topic.name for queue in consumer.queues)

    with PushConsumer(topic.connection, settings_of(topic), listener) as consumer:
        until(lambda: owned() == 4)
        java = threading.Thread(
            target=lambda: theirs.extend(java_member(version, topic, 40, "", "100"))
        )
        java.start()
        until(lambda: owned() == 2 or not java.is_alive())
        bodies = topic.send(200)
        java.join(120)
        until(lambda: owned() == 4)
        until(lambda: len(theirs) + len(listener.messages) >= 200)
    ours = [(m.body, m.queue_index, m.queue_offset, "ours") for m in listener.messages]
    javas = [(body.encode(), int(queue), int(at), "theirs") for body, _, _, queue, at in theirs]
    found = [*ours, *javas]
    assert {body for body, *_ in found} == set(bodies)
    twice = [one for one in found if sum(one[0] == other[0] for other in found) > 1]
    assert twice == [], "consumed by two members, or by one twice"
    assert len(javas) == 100
