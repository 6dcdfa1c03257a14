"""One broker a module, reached over every transport."""

from __future__ import annotations

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import (
    TopicConfig,
)
from support.contracts import topic_names

TRANSPORTS = ("tcp", "grpc")


@pytest.fixture(scope="module")
def broker():
    with Broker(config_from({"flush": "memory"})) as broker:
        yield broker


@pytest.fixture(params=TRANSPORTS)
def settings(request, broker):
    # Generous, for the first batch may make a library load itself on a busy machine.
    if request.param == "tcp":
        return ConnectionSettings((broker.name_server,), request_timeout_ms=30_000)
    return ConnectionSettings(endpoints=broker.endpoints, request_timeout_ms=30_000)


@pytest.fixture
def cluster(settings):
    with open_cluster(settings) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster):
    name = next(topic_names)
    cluster.create_topic(TopicConfig(name, 4, 4))
    return name
