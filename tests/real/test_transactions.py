"""Our transactional producer, and times of delivery, on unmodified RocketMQ."""

from __future__ import annotations

import pytest

import client.producer.test_transactional as ours
from real.adoption import adopt
from rocketmq_client.settings import ConnectionSettings
from support.real_cluster import RealCluster

globals().update(
    adopt(
        ours,
        without={
            "test_a_message_has_one_delay_and_a_half_message_none": "no broker takes part in it"
        },
        short=(
            "test_committed_messages_are_consumed_and_rolled_back_ones_never",
            "test_the_broker_checks_a_half_message_that_is_not_ended",
            "test_a_recalled_message_is_not_delivered",
        ),
    )
)
topic = ours.topic


@pytest.fixture
def connection(broker: RealCluster) -> ConnectionSettings:
    return broker.settings


@pytest.fixture
def later_ms(broker: RealCluster) -> int:
    if broker.is_4:
        pytest.skip("RocketMQ 4.9 knows delay levels and no times of delivery")
    return 4_000
