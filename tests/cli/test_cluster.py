"""`rmq cluster` and `rmq topic list --long`."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_cli.main import main
from rocketmq_cli.usage import EXIT_FAILED
from rocketmq_wire.model import BrokerAddresses, QueueId
from rocketmq_wire.requests.brokers import GetRuntimeInfo, SettingsReply
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue

Produce = Callable[..., int]


def test_brokers_are_shown_with_addresses_roles_and_versions(
    broker: Broker, where: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "--json", *where]) == 0
    (row,) = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert (row["broker"], row["role"], row["address"]) == (
        "broker-a",
        "master",
        broker.name_server,
    )
    is_known = where[0] == "--name-server"
    assert (row["version"] is not None, row["writeRate"] is not None) == (is_known, is_known)


@pytest.fixture
def torn() -> ScriptedBroker:
    """A broker with rates, beside a broker that is down and its replica."""
    broker = ScriptedBroker({QueueId("orders", "broker-a", 0): SimulatedQueue(0, 5)})
    rates = {"putTps": "1520.5 9.0 8.0", "getTransferedTps": "3.0", "brokerVersionDesc": "V4_9_7"}
    broker.script = lambda asked: (
        SettingsReply(rates) if isinstance(asked, GetRuntimeInfo) else None
    )
    return broker


def test_a_broker_that_is_down_is_listed_and_reported(
    torn: ScriptedBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    with torn:
        torn.others = (
            BrokerAddresses("broker-b", "DefaultCluster", {0: "127.0.0.1:1", 1: "127.0.0.1:2"}),
        )
        assert main(["cluster", "--name-server", torn.address]) == EXIT_FAILED
    shown = capfd.readouterr()
    _, first, second, third = (line.split() for line in shown.out.splitlines())
    assert first[1:3] + first[4:] == ["broker-a", "master", "4.9.7", "1,520.5", "3.0"]
    assert second[1:] == ["broker-b", "master", "127.0.0.1:1", "-", "-", "-"]
    assert third[1:] == ["broker-b", "replica", "127.0.0.1:2", "-", "-", "-"]
    assert shown.err.startswith("rmq: broker-b did not answer: ")


def test_topics_are_listed_with_messages_and_their_rate(
    topic: str,
    where: tuple[str, str],
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert produce(b"a\nb\n", topic, "-q", *where) == 0

    def write_meanwhile(seconds: float) -> None:
        assert produce(b"c\n", topic, "-q", *where) == 0
        clock[0] += seconds

    clock = [0.0]
    # The module's own clock alone: threads of others sleep, too.
    time = SimpleNamespace(sleep=write_meanwhile, monotonic=lambda: clock[0])
    monkeypatch.setattr("rocketmq_cli.commands.topic.time", time)
    capfd.readouterr()
    assert main(["topic", "list", "--long", "--json", *where]) == 0
    rows = {row["topic"]: row for row in map(json.loads, capfd.readouterr().out.splitlines())}
    row = rows[topic]
    assert (row["queues"], row["messages"], row["rate"]) == (1, 3, 1.0)
    assert row["newest"] is not None
