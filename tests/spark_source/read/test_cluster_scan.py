"""A look at a cluster whose brokers do not answer everything."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.read.cluster_scan import find_first_store_times
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Bounds, QueueId, StoredMessage
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus
from rocketmq_wire.requests.offsets import GetEarliestStoreTime
from support.records import BORN_HOST, STORE_HOST, lay_out
from support.scripted_broker import ScriptedBroker
from support.simulated_broker import SimulatedQueue

QUEUE = QueueId("orders", "broker-a", 0)
BORN_MS = 1_700_000_000_000


def record(offset: int) -> bytes:
    return lay_out(
        StoredMessage(
            QUEUE.topic, b"body", {}, 0, QUEUE.index, offset, offset * 100, 0,
            BORN_MS, BORN_HOST, BORN_MS + offset, STORE_HOST, 0, 0, 0, 0,
        )
    )  # fmt: skip


@pytest.mark.parametrize(("first", "first_store_times"), [(0, {QUEUE: BORN_MS}), (1, {})])
def test_where_the_first_time_is_not_told_the_first_message_is_pulled(
    first: int, first_store_times: dict[QueueId, int]
) -> None:
    """A proxy knows no code 32; a broker passes over a message whose file it has just deleted."""

    def script(request: Request[Reply]) -> Reply | None:
        if not isinstance(request, PullMessages):
            return None
        return PullReply(PullStatus.FOUND, first + 1, 0, 10, (record(first),))

    with ScriptedBroker({QUEUE: SimulatedQueue(0, 10)}) as broker:
        broker.script = script
        with open_cluster(ConnectionSettings((broker.address,))) as cluster:
            assert find_first_store_times(cluster, {QUEUE: Bounds(0, 10)}) == first_store_times
        assert any(isinstance(asked, GetEarliestStoreTime) for asked in broker.requests)
