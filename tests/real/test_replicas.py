"""A master and its slave: reads follow suggestions and survive the master, commits wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame

from rocketmq_client.cluster import Cluster
from rocketmq_client.lookup import offsets_of_key
from rocketmq_wire.errors import ConnectError, TopicNotFoundError
from rocketmq_wire.model import Bounds, QueueId, TopicConfig
from rocketmq_wire.requests.messages import PullMessages
from rocketmq_wire.requests.offsets import GetMaxOffset
from support.loader import Loader
from support.queries import Batches, Queries, rows_of
from support.real_cluster import BrokerNode, RealCluster
from support.remoting_peer import RemotingPeer

Read = Callable[..., DataFrame]
Pair = tuple[BrokerNode, BrokerNode]


@pytest.fixture
def pair(broker: RealCluster) -> Iterator[Pair]:
    """`broker-r`: a master that finds all its data too old for its memory, and a slave."""
    master = broker.add_broker(
        "broker-r", slaveReadEnable="true", accessMessageInMemoryMaxRatio="0"
    )
    slave = broker.add_slave("broker-r", slaveReadEnable="true")
    yield master, slave
    broker.remove(slave)
    broker.remove(master)


def filled(loader: Loader, topic: str, slave: BrokerNode, count: int) -> QueueId:
    """A queue of `broker-r`, once the slave has all of it."""
    loader.cluster.create_topic(TopicConfig(topic, 1, 1), "broker-r")
    queue = QueueId(topic, "broker-r", 0)
    loader.put(queue, count)
    await_replicated(slave, queue, count)
    return queue


def await_replicated(slave: BrokerNode, queue: QueueId, end: int) -> None:
    """A slave has the messages soon, and serves them once it heard of the topic: up to a minute."""
    deadline = time.monotonic() + 120
    with RemotingPeer(slave.address) as peer:
        while peer.call(GetMaxOffset(queue)).value < end:
            assert time.monotonic() < deadline, "the slave never caught up"
            time.sleep(0.1)
        while not _is_served(peer, queue):
            assert time.monotonic() < deadline, "the slave never heard of the topic"
            time.sleep(0.5)


def _is_served(peer: RemotingPeer, queue: QueueId) -> bool:
    try:
        peer.call(PullMessages(group="asking", queue=queue, start=0, count_max=1))
    except TopicNotFoundError:
        return False
    return True


def await_master(cluster: Cluster, group: str, queue: QueueId, offset: int) -> None:
    """Commit; a broker that has just registered may not be in everybody's route yet."""
    deadline = time.monotonic() + 30
    while cluster.commit(group, {queue: offset}) != {queue: None}:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("end", [BrokerNode.kill, BrokerNode.stop])
def test_a_replica_serves_what_its_master_suggests_and_what_its_master_cannot(
    pair: Pair,
    loader: Loader,
    topic: str,
    group: str,
    read: Read,
    queries: Queries,
    end: Callable[[BrokerNode], None],
) -> None:
    master, slave = pair
    queue = filled(loader, topic, slave, 2_999)
    loader.put(queue, 1, properties={"KEYS": "last"})
    await_replicated(slave, queue, 3_000)
    assert loader.cluster.pull(queue, 0, 32).suggested_broker_id == slave.broker_id
    assert rows_of(read()) == loader.rows(queue)
    options = {"group": group, "startingOffsets": "earliest"}
    batches = Batches()
    query = queries.start(queries.load(**options), batches)
    queries.until(query, lambda: len(batches.rows) == 3_000)
    queries.until(query, lambda: loader.cluster.committed_offsets(group, [queue]) == {queue: 3_000})

    end(master)
    assert rows_of(read()) == loader.rows(queue)
    held = loader.cluster.bounds([queue])[queue]
    assert isinstance(held, Bounds)
    assert (held.start, held.end, held.is_current) == (0, 3_000, False)
    assert [at for _, at in offsets_of_key(loader.cluster, topic, "last")] == [2_999]
    (refused,) = loader.cluster.commit(group, {queue: 7}).values()
    assert isinstance(refused, ConnectError)

    master.start()
    await_master(loader.cluster, f"other-{group}", queue, 5)
    loader.put(queue, 50)
    queries.until(query, lambda: len(batches.rows) >= 3_050)
    queries.until(query, lambda: loader.cluster.committed_offsets(group, [queue]) == {queue: 3_050})
    assert batches.rows == loader.rows(queue)
    # Now the replica goes, in order as well: its master is asked again, whatever it suggests.
    end(slave)
    loader.put(queue, 50)
    queries.until(query, lambda: len(batches.rows) >= 3_100)
    assert batches.rows == rows_of(read()) == loader.rows(queue)
    queries.stop()
