"""Java members that pop, on the bundled broker: switched over by mqadmin, alone and beside ours."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.consumer.common.settings import PopSettings
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.records.handles import ReceiptHandle
from support.consuming import Collector, Topic, settings_of, until
from support.real_cluster import VERSIONS, fetch_jars, run_program
from support.real_cluster.java import run_admin

_MEMBER = Path(__file__).parent / "java" / "PopMember.java"
_VERSION = VERSIONS[0]
"""Clients of 4.9 know no pop."""
pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def connection() -> Iterator[ConnectionSettings]:
    fetch_jars(_VERSION)
    with Broker(config_from({"flush": "memory", "grpc": False})) as broker:
        yield ConnectionSettings(name_servers=(broker.name_server,))


@pytest.fixture
def topic(connection: ConnectionSettings, request: pytest.FixtureRequest) -> Topic:
    topic = Topic(connection, f"t{abs(hash(request.node.name))}")
    group, (address,) = settings_of(topic).group, connection.name_servers
    run_admin(_VERSION, address, "updateSubGroup", "-b", address, "-g", group)
    printed = run_admin(
        *(_VERSION, address, "setConsumeMode", "-b", address, "-t", topic.name),
        *("-g", group, "-m", "POP", "-q", "0"),
    )
    assert f"group[{group}] consume mode[POP]" in printed
    return topic


def java_member(topic: Topic, seconds: int, count: int, fails: str = "none") -> list[list[str]]:
    """What a Java member got: body, attempt, topic, receipt."""
    (name_server,) = topic.connection.name_servers
    printed = run_program(
        *(_VERSION, _MEMBER, name_server, topic.name, settings_of(topic).group),
        *(str(seconds), str(count), fails),
        seconds=seconds + 90,
    )
    return [line.split()[1:] for line in printed.splitlines() if line.startswith("GOT ")]


def test_a_java_member_pops_and_what_fails_comes_again(topic: Topic) -> None:
    bodies = topic.send(100)
    # A first failure costs ten seconds.
    got = java_member(topic, 60, 111, fails="5")
    failing = [body for body in bodies if body.startswith(b"5")]
    assert Counter(body.encode() for body, *_ in got) == Counter([*bodies, *failing])
    assert {name for _, _, name, _ in got} == {topic.name}
    handles = [ReceiptHandle.parse(receipt.replace(",", " ")) for *_, receipt in got]
    assert {handle.broker for handle in handles} == {"broker-a"}
    again = [
        handle for handle, (_, attempt, *_) in zip(handles, got, strict=True) if attempt == "1"
    ]
    assert len(again) == len(failing)
    until(lambda: sum(at or 0 for at in topic.committed(settings_of(topic).group).values()) == 100)


@pytest.mark.long
def test_ours_and_a_java_member_pop_together(topic: Topic) -> None:
    listener = Collector()
    theirs: list[list[str]] = []
    settings = settings_of(topic, rebalance_ms=1_000)
    with PushConsumer(topic.connection, settings, listener, pop=PopSettings()) as consumer:
        until(lambda: bool(consumer.popped_queues))
        java = threading.Thread(target=lambda: theirs.extend(java_member(topic, 40, 50)))
        java.start()
        sent: list[bytes] = []
        while java.is_alive():
            sent += topic.send(20, prefix=f"{len(sent)}-")
            java.join(0.2)
        until(lambda: len({*listener.bodies}) + len(theirs) >= len(sent))
    found = Counter([*listener.bodies, *(body.encode() for body, *_ in theirs)])
    assert set(found) == set(sent)
    assert len(theirs) >= 50
    # What a member had not begun with at its end comes again: that is no more than it may hold.
    assert sum(found.values()) - len(found) <= 96
