"""Lists and descriptions when a part of the cluster does not answer: what is known, and a code."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rocketmq_cli.main import main
from rocketmq_cli.usage import EXIT_FAILED
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import BrokerAddresses, QueueId, QueueStats
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import GroupsReply, ListGroups
from rocketmq_wire.requests.topics import GetTopicStats, ListTopics, TopicsReply, TopicStatsReply
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue

DEAD_LETTERS = "%DLQ%billing"


def answer(request: Request[Reply]) -> Reply | BrokerError | None:
    if isinstance(request, GetTopicStats):
        return TopicStatsReply({QueueId(request.topic, "broker-a", 0): QueueStats(0, 7, 1_000)})
    if isinstance(request, ListTopics):
        return TopicsReply(("orders", DEAD_LETTERS))
    if isinstance(request, ListGroups):
        return GroupsReply(("billing",))
    return None


@pytest.fixture(params=[True, False], ids=["torn", "whole"])
def torn(request: pytest.FixtureRequest) -> Iterator[tuple[ScriptedBroker, bool]]:
    """A cluster, and whether its second broker is unavailable."""
    names = "ab" if request.param else "a"
    queues = {
        QueueId(topic, f"broker-{name}", 0): SimulatedQueue(0, 7)
        for topic in ("orders", DEAD_LETTERS)
        for name in names
    }
    with ScriptedBroker(queues) as broker:
        broker.script = answer
        if request.param:
            broker.others = (BrokerAddresses("broker-b", "DefaultCluster", {0: "127.0.0.1:1"}),)
        yield broker, request.param


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (("topic", "describe", "orders"), "messages", 7),
        (("dlq", "list"), "messages", 7),
        (("group", "list"), "group", "billing"),
    ],
    ids=["topic describe", "dlq list", "group list"],
)
def test_partial_results_are_shown_and_end_with_a_failure(
    words: tuple[str, ...],
    field: str,
    value: object,
    torn: tuple[ScriptedBroker, bool],
    capfd: pytest.CaptureFixture[str],
) -> None:
    broker, is_torn = torn
    code = main([*words, "--json", "--name-server", broker.address])
    shown = capfd.readouterr()
    assert json.loads(shown.out)[field] == value
    assert code == (EXIT_FAILED if is_torn else 0)
    assert ("broker-b did not report" in shown.err) == is_torn
