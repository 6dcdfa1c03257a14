"""Spark beside a cluster that shows nothing but the gRPC endpoint of an unmodified proxy 5."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import spark.test_pop as pop
from real.adoption import adopt
from support.real_cluster import VERSIONS, RealCluster

_THROUGH_A_BROKER = "pops by the broker's own protocol: test_spark_groups"

globals().update(
    adopt(
        pop,
        without={
            "test_a_stream_pops_every_message_and_acknowledges_it": _THROUGH_A_BROKER,
            "test_a_batch_that_failed_comes_again_after_a_restart": _THROUGH_A_BROKER,
            "test_rows_of_a_batch_are_the_same_however_often_they_are_read": _THROUGH_A_BROKER,
        },
    )
)


@dataclass(frozen=True)
class _Addresses:
    """As the tests know the bundled broker. The name server is for what fills topics."""

    name_server: str
    endpoints: str


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Addresses]:
    cluster = RealCluster(VERSIONS[0], tmp_path_factory.mktemp("real"), is_brief=True)
    try:
        cluster.start_name_server()
        cluster.add_broker("broker-a")
        cluster.start_proxy()
        assert cluster.grpc_endpoint is not None
        yield _Addresses(cluster.name_server, cluster.grpc_endpoint)
    finally:
        cluster.close()
