"""The bundled broker beside a real one, with equal settings, and Java programs on both."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rocketmq_broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import TopicConfig
from support.real_cluster import RealCluster

JAVA = Path(__file__).parent / "java"
VERSIONS = ("5.3.3", "4.9.7")
CLUSTER = "TestCluster"
T = TypeVar("T")


@dataclass(frozen=True)
class BrokerUnderTest:
    """The addresses of a broker of either kind."""

    name_server: str
    address: str

    def create_topic(self, topic: str, queue_count: int = 4) -> None:
        with open_cluster(ConnectionSettings((self.name_server,))) as cluster:
            cluster.create_topic(TopicConfig(topic, queue_count, queue_count))


@contextlib.contextmanager
def our_broker(folder: Path, **settings: object) -> Iterator[BrokerUnderTest]:
    """The bundled broker in this process, on the disk, with SQL92 filters on."""
    config = config_from(
        {
            "data_dir": str(folder),
            "cluster_name": CLUSTER,
            "property_filter": True,
            "grpc": False,
            **settings,
        }
    )
    with Broker(config) as broker:
        yield BrokerUnderTest(broker.name_server, broker.name_server)


@contextlib.contextmanager
def real_broker(version: str, folder: Path, **settings: str) -> Iterator[BrokerUnderTest]:
    """Unmodified RocketMQ of a version, with SQL92 filters on."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = RealCluster(version, folder, is_brief=True)
    try:
        cluster.start_name_server()
        node = cluster.add_broker("broker-a", **{"enablePropertyFilter": "true", **settings})
        yield BrokerUnderTest(cluster.name_server, node.address)
    finally:
        cluster.close()


def on_both(
    ours: BrokerUnderTest, real: BrokerUnderTest, work: Callable[[BrokerUnderTest], T]
) -> tuple[T, T]:
    """The same work on both brokers at the same time."""
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(work, broker) for broker in (ours, real)]
        return futures[0].result(), futures[1].result()
