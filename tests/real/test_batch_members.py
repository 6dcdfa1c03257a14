"""Queries that join a consumer group, on unmodified RocketMQ."""

from __future__ import annotations

import pytest

import client.consumer.test_shared_batch_members as ours
from real.adoption import adopt
from rocketmq_client.settings import ConnectionSettings
from support.consuming import Topic
from support.real_cluster import RealCluster

globals().update(adopt(ours, without={}, short=("test_a_commit_is_stored_at_once",)))


@pytest.fixture
def connection(broker: RealCluster) -> ConnectionSettings:
    return broker.settings


@pytest.fixture
def topic(connection: ConnectionSettings, request: pytest.FixtureRequest) -> Topic:
    return Topic(connection, f"t{abs(hash(request.node.name))}")
