"""Transactional writes killed at every point, on unmodified RocketMQ, which asks every 2 s."""

from __future__ import annotations

import pytest

import spark_source.sink.transactional.test_commit as ours
import spark_source.sink.transactional.test_recovery as checks
from real.adoption import adopt
from rocketmq_client.settings import ConnectionSettings
from support.real_cluster import RealCluster

_NO_BROKER = "no broker takes part in it"
_FORGETS = "RocketMQ commits what was rolled back, when asked to"
globals().update(
    adopt(
        ours,
        without={
            "test_half_messages_survive_their_packing": _NO_BROKER,
            "test_options_that_contradict_are_refused": _NO_BROKER,
        },
        short=("test_a_batch_is_visible_when_it_is_committed_and_not_before",),
    )
)
globals().update(
    adopt(
        checks,
        without={
            "test_half_messages_that_the_broker_gave_up_are_reported": _FORGETS,
            "test_what_is_given_up_holds_up_nothing_behind_it": _FORGETS,
        },
    )
)
topic = ours.topic


@pytest.fixture
def connection(broker: RealCluster) -> ConnectionSettings:
    return broker.settings
