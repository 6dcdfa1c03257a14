"""Members that begin at a time, on unmodified RocketMQ 5: the tests of the bundled broker."""

from __future__ import annotations

import pytest

import client.consumer.test_starts_by_time as ours
from real.adoption import adopt
from rocketmq_client.settings import ConnectionSettings
from support.consuming import Topic
from support.real_cluster import VERSIONS, RealCluster

# Brokers of 4.9 let a group without progress begin at 0 in young topics, whatever it asks for.
pytestmark = pytest.mark.parametrize("broker", VERSIONS[:1], indirect=True)

globals().update(
    adopt(ours, without={}, short=("test_a_listener_gets_messages_stored_after_the_timestamp",))
)

time_ms = ours.time_ms


@pytest.fixture
def connection(broker: RealCluster) -> ConnectionSettings:
    return broker.settings


@pytest.fixture
def topic(connection: ConnectionSettings, request: pytest.FixtureRequest) -> Topic:
    return Topic(connection, f"t{abs(hash(request.node.name))}")
