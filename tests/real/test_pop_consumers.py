"""Pop consumers on unmodified RocketMQ 5: the same tests as on the bundled broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import client.consumer.test_pop as ours
from real.adoption import adopt
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from support.consuming import Topic
from support.real_cluster import VERSIONS, RealCluster

# Brokers of 4.9 know no pop.
pytestmark = pytest.mark.parametrize("broker", VERSIONS[:1], indirect=True)

globals().update(
    adopt(
        ours,
        without={
            "test_an_invalid_handle_cannot_be_renewed": "RocketMQ renews it, and delivers twice",
            "test_pops_pause_above_the_limit_of_waiting_messages": "no broker takes part in it",
        },
        short=(
            "test_an_unacknowledged_message_is_redelivered_with_its_attempts",
            "test_a_running_push_consumer_changes_its_mode",
        ),
    )
)


@pytest.fixture
def invisible_ms() -> int:
    return 3_000


@pytest.fixture
def connection(broker: RealCluster) -> ConnectionSettings:
    return broker.settings


@pytest.fixture
def topic(connection: ConnectionSettings, request: pytest.FixtureRequest) -> Topic:
    return Topic(connection, f"t{abs(hash(request.node.name))}")


@pytest.fixture
def cluster(connection: ConnectionSettings) -> Iterator[Cluster]:
    with open_cluster(connection) as cluster:
        yield cluster
