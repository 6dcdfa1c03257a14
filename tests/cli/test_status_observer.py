"""What the status page sees of a cluster of which a part does not answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketmq_cli.status_page.history import Sample
from rocketmq_cli.status_page.web import take_sample
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import BrokerAddresses, CommittedOffset, QueueId, QueueStats
from rocketmq_wire.requests.brokers import GetRuntimeInfo, SettingsReply
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import GroupsReply, ListGroups
from rocketmq_wire.requests.offsets import ConsumeStatsReply, GetConsumeStats
from rocketmq_wire.requests.topics import GetTopicStats, ListTopics, TopicsReply, TopicStatsReply
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue

HERE, THERE = (QueueId("orders", f"broker-{name}", 0) for name in "ab")
STATS = QueueStats(0, 15, 1_000)
OFFSETS = CommittedOffset(15, 5, 1_000)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """Answers all that the status page asks, for a topic on this broker and on broker-b."""
    with ScriptedBroker(dict.fromkeys((HERE, THERE), SimulatedQueue(0, 15))) as broker:
        broker.script = answers
        yield broker


def answers(request: Request[Reply]) -> Reply | BrokerError | None:
    if isinstance(request, ListTopics):
        return TopicsReply(("orders", "RMQ_SYS_TRACE_TOPIC"))
    if isinstance(request, ListGroups):
        return GroupsReply(("billing", "rmq-check"))
    if isinstance(request, GetRuntimeInfo):
        return SettingsReply({"brokerVersionDesc": "V5"})
    if isinstance(request, GetTopicStats):
        return TopicStatsReply({HERE: STATS})
    if isinstance(request, GetConsumeStats):
        return ConsumeStatsReply({HERE: OFFSETS}, 0.0)
    return None


def sample_of(broker: ScriptedBroker) -> Sample:
    settings = ConnectionSettings(name_servers=(broker.address,), connect_timeout_ms=1_000)
    with open_cluster(settings) as cluster:
        return take_sample(cluster, 7)


def test_what_answers_is_seen_beside_a_broker_that_is_away(broker: ScriptedBroker) -> None:
    broker.others = (BrokerAddresses("broker-b", "DefaultCluster", {0: "127.0.0.1:1"}),)
    sample = sample_of(broker)
    assert sample.topics == {"orders": {HERE: STATS}}
    assert sample.groups == {"billing": {HERE: OFFSETS}}
    here, there = sample.brokers
    assert here.error is None
    assert there.error is not None
    # The broker says it all, once.
    assert sample.problems == ()


def test_a_broker_without_a_master_is_away(broker: ScriptedBroker) -> None:
    broker.others = (BrokerAddresses("broker-b", "DefaultCluster", {1: "127.0.0.1:1"}),)
    sample = sample_of(broker)
    assert [seen.error for seen in sample.brokers] == [None, "has no master"]
    assert sample.groups == {"billing": {HERE: OFFSETS}}
    assert sample.problems == ()


def test_a_broker_that_keeps_a_group_to_itself_is_named(broker: ScriptedBroker) -> None:
    broker.others = (BrokerAddresses("broker-b", "DefaultCluster", {0: broker.address}),)
    calls = iter((answers, lambda _: BrokerError(1, "disk is on fire")) * 9)

    def by_call(asked: Request[Reply]) -> Reply | BrokerError | None:
        return (next(calls) if isinstance(asked, GetConsumeStats) else answers)(asked)

    broker.script = by_call
    (problem,) = sample_of(broker).problems
    assert "'billing' at broker-b are unknown" in problem


def test_a_cluster_that_is_away_is_a_problem(broker: ScriptedBroker) -> None:
    broker.stop()
    sample = sample_of(broker)
    assert (sample.brokers, len(sample.problems)) == ((), 1)
