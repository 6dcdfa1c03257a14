"""RocketMQ's brokers at a bundled broker's name server, beside the bundled broker itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketmq_broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import Cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_wire.errors import TopicNotFoundError, raise_first
from rocketmq_wire.model import Message, TopicConfig
from support.consuming import until
from support.real_cluster import VERSIONS, RealCluster
from support.real_cluster.cluster import BrokerNode

_MEMBER = Path(__file__).parents[1] / "real" / "java" / "Member.java"
_NAMES = {"ours", "theirs"}
pytestmark = pytest.mark.timeout(400)


@dataclass
class Mixed:
    """A bundled broker, the name server of all, and a broker of RocketMQ."""

    rocketmq: RealCluster
    theirs: BrokerNode
    cluster: Cluster

    def brokers_of(self, topic: str) -> set[str]:
        try:
            return {queue.broker for queue in self.cluster.queues(topic)}
        except TopicNotFoundError:
            return set()


@contextmanager
def mixed(version: str, folder: Path) -> Iterator[Mixed]:
    rocketmq = RealCluster(version, folder, is_brief=True)
    port = int(rocketmq.name_server.rpartition(":")[2])
    ours = {"flush": "memory", "port": port, "broker_name": "ours", "cluster_name": "TestCluster"}
    with Broker(config_from({**ours, "grpc": False})), rocketmq.open() as cluster:
        try:
            yield Mixed(rocketmq, rocketmq.add_broker("theirs"), cluster)
        finally:
            rocketmq.close()


@pytest.mark.parametrize(
    "version", [VERSIONS[0], *(pytest.param(each, marks=pytest.mark.long) for each in VERSIONS[1:])]
)
def test_a_broker_of_rocketmq_serves_beside_ours(version: str, tmp_path: Path) -> None:
    with mixed(version, tmp_path) as both:
        cluster = both.cluster
        assert set(cluster.masters()) == _NAMES
        cluster.create_topic(TopicConfig("orders", 3, 3))
        assert both.brokers_of("orders") == _NAMES, "it registers a new topic alone"
        bodies = [str(number) for number in range(60)]
        with Producer(both.rocketmq.settings) as producer:
            for body in bodies:
                producer.send(Message("orders", body.encode()))
        ends = raise_first(cluster.bounds(cluster.queues("orders")))
        assert all(bounds.end > 0 for bounds in ends.values())
        got = both.rocketmq.java(_MEMBER, "orders", "readers", "60", "", "60", seconds=150)
        found = [line.split()[1] for line in got.splitlines() if line.startswith("GOT ")]
        assert sorted(found) == sorted(bodies)
        assert "theirs" in both.rocketmq.admin("clusterList")
        cluster.delete_topic("orders")
        assert both.brokers_of("orders") == set()
        both.theirs.kill()
        until(lambda: cluster.masters() == ("ours",))
        both.theirs.start()
        assert set(cluster.masters()) == _NAMES
        both.theirs.stop()
        assert cluster.masters() == ("ours",), "it has unregistered"
