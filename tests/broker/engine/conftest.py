"""Engines with the topics that most of the tests use."""

from __future__ import annotations

import pytest

from rocketmq_wire.model import TopicConfig
from rocketmq_wire.requests.topics import CreateTopic
from support.engines import EngineUnderTest, queue_of


@pytest.fixture
def broker() -> EngineUnderTest:
    broker = EngineUnderTest()
    broker.ask(CreateTopic(TopicConfig("orders", 2, 2)))
    return broker


@pytest.fixture
def filled(broker: EngineUnderTest) -> EngineUnderTest:
    """Three messages a second apart, then two at once."""
    orders = queue_of("orders")
    for _ in range(3):
        broker.store_messages(orders, b"x")
        broker.now_ms += 1_000
    broker.store_messages(orders, b"x", b"y")
    return broker
