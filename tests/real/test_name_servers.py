"""The bundled broker at RocketMQ's name server: it registers there beside RocketMQ's own broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_cli.support.broker_process import BrokerProcess
from rocketmq_client.cluster import Cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_wire.errors import TopicNotFoundError, raise_first
from rocketmq_wire.model import Message, TopicConfig
from rocketmq_wire.requests.brokers import AddWritePermission, WipeWritePermission
from support.consuming import until
from support.real_cluster import RealCluster
from support.remoting_peer import RemotingPeer

_MEMBER = Path(__file__).parent / "java" / "Member.java"


@pytest.fixture
def ours(broker: RealCluster, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A bundled broker that is registered with RocketMQ's name server as `ours`."""
    options = ("--name-server", broker.name_server, "--broker-name", "ours", "--verbose")
    with BrokerProcess(tmp_path, *options, "--set", "cluster_name=TestCluster") as process:
        yield process


@pytest.fixture
def cluster(broker: RealCluster) -> Iterator[Cluster]:
    with broker.open() as opened:
        yield opened


def brokers_of(cluster: Cluster, topic: str) -> set[str]:
    try:
        return {queue.broker for queue in cluster.queues(topic)}
    except TopicNotFoundError:
        return set()


@pytest.mark.short
@pytest.mark.usefixtures("ours")
def test_a_topic_lies_on_both_brokers_and_a_java_member_reads_it(
    broker: RealCluster, cluster: Cluster, topic: str
) -> None:
    assert set(cluster.masters()) == {"broker-a", "ours"}
    cluster.create_topic(TopicConfig(topic, 3, 3))
    assert brokers_of(cluster, topic) == {"broker-a", "ours"}, "at once, as with RocketMQ's"
    bodies = [str(number) for number in range(60)]
    with Producer(broker.settings) as producer:
        for body in bodies:
            producer.send(Message(topic, body.encode()))
    ends = raise_first(cluster.bounds(cluster.queues(topic)))
    assert all(bounds.end > 0 for bounds in ends.values())
    got = broker.java(_MEMBER, topic, f"group-{topic}", "60", "", "60", seconds=150)
    found = [line.split()[1] for line in got.splitlines() if line.startswith("GOT ")]
    assert sorted(found) == sorted(bodies)
    assert "ours" in broker.admin("topicRoute", "-t", topic)
    assert "ours" in broker.admin("clusterList")


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_that_ends_leaves_the_routes_and_comes_back(
    ours: BrokerProcess, cluster: Cluster, topic: str, how: str
) -> None:
    cluster.create_topic(TopicConfig(topic, 2, 2), "ours")
    assert brokers_of(cluster, topic) == {"ours"}
    getattr(ours, how)()
    until(lambda: brokers_of(cluster, topic) == set() and cluster.masters() == ("broker-a",))
    ours.start()
    assert brokers_of(cluster, topic) == {"ours"}


@pytest.mark.usefixtures("ours")
def test_a_deleted_topic_leaves_the_routes(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(TopicConfig(topic, 2, 2))
    cluster.delete_topic(topic)
    until(lambda: brokers_of(cluster, topic) == set())
    cluster.create_topic(TopicConfig(topic, 1, 1))
    assert len(cluster.queues(topic)) == 2


def test_a_name_server_that_restarts_knows_the_broker_again(
    broker: RealCluster, ours: BrokerProcess, cluster: Cluster, topic: str
) -> None:
    cluster.create_topic(TopicConfig(topic, 2, 2), "ours")
    broker.stop_name_server()
    broker.start_name_server()
    until(lambda: brokers_of(cluster, topic) == {"ours"})
    until(lambda: "broker-a" in cluster.masters())
    log = ours.log_path.read_text()
    assert log.count("is not registered there") == log.count("is registered again") == 1


@pytest.mark.usefixtures("ours")
def test_a_tool_closes_the_broker_for_writes_until_its_topics_change(
    broker: RealCluster, cluster: Cluster, topic: str
) -> None:
    cluster.create_topic(TopicConfig(topic, 2, 2), "ours")
    with RemotingPeer(broker.name_server) as peer:
        assert peer.call(WipeWritePermission("ours")).count > 1
        assert cluster.route(topic).writable_queues(topic) == ()
        cluster.create_topic(TopicConfig(f"{topic}-2", 1, 1), "ours")
        assert len(cluster.route(topic).writable_queues(topic)) == 2
        assert peer.call(AddWritePermission("ours")).count > 1
