"""A broker per test file, and a topic per test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.settings import ConnectionSettings
from support.consuming import Topic


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    with Broker(config_from({"flush": "memory", "grpc": False})) as broker:
        yield broker.name_server


@pytest.fixture
def connection(name_server: str) -> ConnectionSettings:
    return ConnectionSettings(name_servers=(name_server,))


@pytest.fixture
def topic(connection: ConnectionSettings, request: pytest.FixtureRequest) -> Topic:
    return Topic(connection, f"t{abs(hash(request.node.name))}")
