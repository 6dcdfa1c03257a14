"""The suite that every transport passes, on unmodified RocketMQ."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import contract.test_cluster_contract as contract
import contract.test_download_contract as downloads
from real.adoption import adopt
from rocketmq_client.cluster import Cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import TopicConfig
from support.contracts import topic_names
from support.real_cluster import RealCluster

globals().update(
    adopt(
        contract,
        without={},
        short=(
            "test_a_created_topic_is_listed_with_its_queues_and_its_configuration",
            "test_offsets_are_found_by_store_time_and_clamped",
            "test_a_committed_offset_is_none_at_first_and_may_decrease",
            "test_the_watch_knows_end_offsets_and_notices_new_messages",
            "test_pipelined_batches_keep_the_order_of_their_queue",
            "test_plain_pulls_tell_the_four_statuses_apart",
        ),
    )
)
globals().update(
    adopt(
        downloads,
        without={},
        short=(
            "test_a_range_arrives_whole_and_in_order",
            "test_a_tag_filter_selects_at_the_broker",
            "test_an_end_that_does_not_exist_is_truncated_after_the_outage_limit",
        ),
    )
)


@pytest.fixture
def settings(broker: RealCluster) -> ConnectionSettings:
    return broker.settings


@pytest.fixture
def cluster(broker: RealCluster) -> Iterator[Cluster]:
    with broker.open() as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name: str = next(topic_names)
    cluster.create_topic(TopicConfig(name, 4, 4))
    return name
