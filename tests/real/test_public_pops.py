"""Pops over the public gRPC service of an unmodified proxy 5: the same tests as on our broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import client.consumer.test_public_pop as ours
from real.adoption import adopt
from support.real_cluster import VERSIONS, RealCluster

topic, client = ours.topic, ours.client
globals().update(
    adopt(
        ours,
        without={
            "test_a_missing_server_raises_at_once": "no broker takes part in it",
            "test_a_broken_connection_is_reopened": "a proxy delivers to what it still holds, "
            "and the message comes again when that is over",
        },
        short=("test_messages_are_received_as_records_with_handles",),
    )
)


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    cluster = RealCluster(VERSIONS[0], tmp_path_factory.mktemp("real"), is_brief=True)
    try:
        cluster.start_name_server()
        cluster.add_broker("broker-a")
        cluster.start_proxy()
        assert cluster.grpc_endpoint is not None
        yield cluster.name_server, cluster.grpc_endpoint
    finally:
        cluster.close()
