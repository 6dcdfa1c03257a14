"""Through the remoting port of a 5.x proxy, which is name server and broker in one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from support.loader import Loader
from support.queries import Batches, Queries, rows_of
from support.real_cluster import RealCluster


@pytest.fixture
def proxy(broker: RealCluster) -> str:
    if broker.is_4:
        pytest.skip("there is no proxy before 5.0")
    return broker.proxy_address or broker.start_proxy()


def test_batches_and_streams_are_read_through_a_proxy(
    proxy: str,
    loader: Loader,
    topic: str,
    group: str,
    read: Callable[..., DataFrame],
    queries: Queries,
) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 1_200)
    assert rows_of(read(nameServer=proxy)) == loader.rows(*queues)
    options = {"nameServer": proxy, "startingOffsets": "earliest", "group": group}
    first = queries.available(maxOffsetsPerTrigger="1000", **options)
    assert first.rows == loader.rows(*queues)
    assert loader.cluster.committed_offsets(group, queues) == dict.fromkeys(queues, 1_200)
    loader.put(queues[1], 30)
    assert queries.available(**options).rows == loader.rows(queues[1], start=1_200)


def test_tags_and_times_select_through_a_proxy(
    proxy: str, loader: Loader, topic: str, read: Callable[..., DataFrame], queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 300, tag="A")
    loader.put(queue, 3, tag="B")
    loader.put(queue, 300, tag="C")
    stored = loader.cluster.store_time_at(queue, 602)
    assert stored is not None
    while (loader.cluster.store_time_at(queue, len(loader.sent[queue]) - 1) or 0) <= stored:
        loader.put(queue, 1, tag="B")
    start = next(
        n
        for n in range(603, len(loader.sent[queue]))
        if (loader.cluster.store_time_at(queue, n) or 0) > stored
    )
    tagged = loader.rows(queue, start=300, end=303) + loader.rows(queue, start=603)
    options = {"nameServer": proxy, "tags": "B || D"}
    assert rows_of(read(**options)) == tagged
    assert queries.available("tags", startingOffsets="earliest", **options).rows == tagged
    since = {"nameServer": proxy, "startingTimestamp": str(stored + 1)}
    assert rows_of(read(**since)) == loader.rows(queue, start=start)
    assert queries.available("since", **since).rows == loader.rows(queue, start=start)


def test_a_running_stream_sees_new_messages_and_queues_through_a_proxy(
    proxy: str, loader: Loader, topic: str, queries: Queries
) -> None:
    queues = loader.create(topic, 2)
    loader.put(queues[0], 5)
    batches = Batches()
    query = queries.start(queries.load(nameServer=proxy, startingOffsets="earliest"), batches)
    for count in (5, 9, 13):
        queries.until(query, lambda count=count: len(batches.rows) >= count)  # type: ignore[misc]
        assert batches.rows == loader.rows(*queues)
        # Nothing is left to read: what arrives now ends a pull that the broker holds.
        loader.put(queues[1], 4)
    queues = loader.create(topic, 3)
    loader.put(queues[2], 7)
    queries.until(query, lambda: len(batches.rows) >= 24)
    assert batches.rows == loader.rows(*queues)


def test_a_recreated_and_refilled_topic_is_recognised_through_a_proxy(
    proxy: str, loader: Loader, topic: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 10)
    options = {"nameServer": proxy, "startingOffsets": "earliest"}
    assert queries.available(**options).rows == loader.rows(queue)
    loader.cluster.delete_topic(topic)
    loader.sent.clear()
    loader.create(topic, 1)
    loader.put(queue, 25)
    with pytest.raises(PySparkException, match=r"TOPIC_RECREATED\].*requested=10.*\[0,25\)"):
        queries.available(**options)
    survivors = queries.available(failOnDataLoss="false", **options)
    assert survivors.rows == loader.rows(queue)


def test_endpoints_of_a_real_proxy_say_how_to_get_there(
    proxy: str, broker: RealCluster, loader: Loader, topic: str, read: Callable[..., DataFrame]
) -> None:
    loader.create(topic, 1)
    assert broker.grpc_endpoint is not None
    for port in (broker.grpc_endpoint, proxy):  # The proxy's remoting port takes gRPC, too.
        with pytest.raises(PySparkException, match="reach real clusters through nameServer"):
            read(endpoints=port).count()
