"""A broker with a topic `orders` for every page, and one Spark session for all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketmq_broker import Broker, BrokerConfig
from rocketmq_cli.support.local_spark import local_session
from rocketmq_client.cluster import open_cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Message, TopicConfig

ORDERS = 1_000
QUEUES = 4
_TAGS = ("new", "paid", "shipped", "returned")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    pytest.MonkeyPatch().setenv("PYSPARK_PYTHON", sys.executable)
    session = local_session("documents", Path(tmp_path_factory.mktemp("spark")))
    yield session
    session.stop()


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Holds a thousand orders, JSON with keys and tags."""
    with Broker(BrokerConfig(flush="memory")) as broker:
        settings = ConnectionSettings(name_servers=(broker.name_server,))
        with open_cluster(settings) as cluster, Producer(cluster) as producer:
            cluster.create_topic(TopicConfig("orders", QUEUES, QUEUES))
            queues = cluster.queues("orders")
            for index, queue in enumerate(queues):
                messages = [
                    Message("orders", order(number), _TAGS[number % len(_TAGS)], f"order-{number}")
                    for number in range(index, ORDERS, len(queues))
                ]
                producer.send_batch(queue, messages)
        yield broker


def order(number: int) -> bytes:
    """The body of an order."""
    text = f'{{"order_id": {number}, "customer": "c{number % 7}", "amount": {number / 4}}}'
    return text.encode()
