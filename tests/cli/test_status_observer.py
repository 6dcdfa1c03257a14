"""What the status page sees of a cluster of which a part does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from rocketmq_cli.status_page.history import Sample
from rocketmq_cli.status_page.sampling import take_sample
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import BrokerAddresses, CommittedOffset, QueueId, QueueStats
from rocketmq_wire.requests.brokers import GetBrokerSettings, GetRuntimeInfo, SettingsReply
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import (
    Connection,
    ConsumersReply,
    GetConsumers,
    GroupsReply,
    ListGroups,
)
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


class Reads:
    """A cluster that records which store times it is asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.asked: list[dict[QueueId, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def store_times_at(self, offsets: dict[QueueId, int]) -> dict[QueueId, int | None]:
        self.asked.append(dict(offsets))
        return dict.fromkeys(offsets, 1_000 + len(self.asked))


@pytest.mark.parametrize(
    ("committed", "start", "asked"),
    [(5, 0, [5]), (6, 0, [5, 6]), (5, 9, [5, 5]), (15, 0, [5])],
    ids=["the same", "it moved", "retention passed it", "no lag"],
)
def test_a_store_time_is_read_once_while_its_message_is_the_next(
    broker: ScriptedBroker, committed: int, start: int, asked: list[int]
) -> None:
    state = [(5, 0)]

    def by_state(request: Request[Reply]) -> Reply | BrokerError | None:
        if isinstance(request, GetTopicStats):
            return TopicStatsReply({HERE: QueueStats(state[-1][1], 15, 1_000)})
        if isinstance(request, GetConsumeStats):
            return ConsumeStatsReply({HERE: CommittedOffset(15, state[-1][0], 1_000)}, 0.0)
        return answers(request)

    broker.script = by_state
    settings = ConnectionSettings(name_servers=(broker.address,), connect_timeout_ms=1_000)
    with open_cluster(settings) as cluster:
        reads = Reads(cluster)
        before = take_sample(cast("Cluster", reads), 7)
        state.append((committed, start))
        after = take_sample(cast("Cluster", reads), 8, before)
    assert [offsets[HERE] for offsets in reads.asked] == asked
    assert after.unread_ms["billing"] == ({} if committed == 15 else {HERE: 1_000 + len(asked)})


def test_a_sample_has_dead_letters_members_and_the_brokers_retention(
    broker: ScriptedBroker,
) -> None:
    dead = QueueId("%DLQ%billing", "broker-a", 0)
    broker.queues[dead] = SimulatedQueue(0, 3)

    def more(request: Request[Reply]) -> Reply | BrokerError | None:
        if isinstance(request, ListTopics):
            return TopicsReply(("orders", dead.topic, "%RETRY%billing", "TBW102"))
        if isinstance(request, GetTopicStats) and request.topic == dead.topic:
            return TopicStatsReply({dead: QueueStats(0, 3, 1_000)})
        if isinstance(request, GetBrokerSettings):
            return SettingsReply({"fileReservedTime": "48"})
        if isinstance(request, GetConsumers):
            client = Connection("client-1", "10.0.0.1:5", "JAVA", 1)
            return ConsumersReply((client,), "push", "CLUSTERING", "", {})
        return answers(request)

    broker.script = more
    sample = sample_of(broker)
    assert set(sample.topics) == {"orders", dead.topic}
    assert sample.dead_letters("billing") == 3
    assert sample.brokers[0].retention_hours == "48"
    assert sample.members["billing"].clients == {"client-1": ("10.0.0.1:5", "JAVA")}
