"""The causes of code 21 at real brokers, distinguished by what the queue holds.

Retention, the fifth, is in test_retention.py, and mqadmin's resets beside a query are in
test_administration.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketmq_client.cluster import Cluster
from rocketmq_client.download.contract import ReadLimits, ReadSpec
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import Loss, LossReason
from rocketmq_wire.model import Bounds, OffsetRange, QueueId
from rocketmq_wire.requests.messages import PullStatus
from support.loader import Loader
from support.real_cluster import RealCluster


@pytest.fixture
def loader(broker: RealCluster) -> Iterator[Loader]:
    with broker.open() as cluster:
        yield Loader(cluster)


def lost(cluster: Cluster, queue: QueueId, start: int, end: int) -> Loss:
    spec = ReadSpec("readers", limits=ReadLimits(outage_ms=300))
    with pytest.raises(RangeLostError) as caught:
        list(cluster.read_ranges([OffsetRange(queue, start, end)], spec))
    return caught.value.loss


def test_an_offset_beyond_the_end_is_truncation(loader: Loader, topic: str) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 10)
    reply = loader.cluster.pull(queue, 11, 1)
    assert (reply.status, reply.next_begin) == (PullStatus.OFFSET_ILLEGAL, 10)
    loss = lost(loader.cluster, queue, 11, 20)
    assert (loss.reason, loss.bounds) == (LossReason.TRUNCATED, Bounds(0, 10))


@pytest.mark.parametrize("is_used", [True, False])
def test_an_offset_of_an_empty_queue_is_truncation(
    loader: Loader, topic: str, is_used: bool
) -> None:
    first, second = loader.create(topic, 2)
    if is_used:  # The topic, not the queue: that one has no files yet.
        loader.put(first, 1)
    reply = loader.cluster.pull(second, 7, 1)
    assert (reply.status, reply.next_begin) == (PullStatus.OFFSET_ILLEGAL, 0)
    loss = lost(loader.cluster, second, 7, 9)
    assert (loss.reason, loss.bounds) == (LossReason.TRUNCATED, Bounds(0, 0))


def test_a_pending_reset_moves_no_download(broker: RealCluster, loader: Loader, topic: str) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 300)
    group = f"group-{topic}"
    assert loader.cluster.commit(group, {queue: 250}) == {queue: None}
    broker.admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", "-f", "true")
    chunks = loader.cluster.read_ranges([OffsetRange(queue, 100, 300)], ReadSpec(group))
    covered = [(chunk.start, chunk.end) for chunk in chunks]
    assert covered[0][0] == 100
    assert [end for _, end in covered] == [start for start, _ in covered[1:]] + [300]
