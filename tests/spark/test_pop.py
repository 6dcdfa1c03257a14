"""Streams that pop from the bundled broker: every message, also through a failure and a restart."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from rocketmq_broker import Broker
from rocketmq_client.consumer.pop import PopConsumer
from rocketmq_wire.records.handles import ReceiptHandle
from support.loader import Loader
from support.queries import Batches, Queries

GROUP = "poppers"
POP = {"consumeMode": "pop", "group": GROUP, "startingOffsets": "earliest"}


def committed(loader: Loader, topic: str) -> int:
    found = loader.cluster.committed_offsets(GROUP, loader.cluster.queues(topic))
    return sum(offset for offset in found.values() if isinstance(offset, int))


def test_a_stream_pops_every_message_and_acknowledges_it(
    loader: Loader, topic: str, queries: Queries
) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 60)
    batches = queries.available(maxOffsetsPerTrigger="50", **POP)
    assert batches.rows == loader.rows(*queues)
    assert batches.sizes == [50, 50, 20]
    # The call that ended the run has acknowledged its last batch.
    assert committed(loader, topic) == 120
    consumer = PopConsumer(loader.cluster, GROUP, topic)
    assert consumer.receive() == []


def test_a_batch_that_failed_comes_again_after_a_restart(
    loader: Loader, topic: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 30)
    options = {**POP, "maxOffsetsPerTrigger": "10", "invisibleTimeMs": "3s"}
    failing = Batches(fail_at=1)
    with pytest.raises(PySparkException, match="the driver dies here"):
        queries.run(failing, **options)
    again = Batches()
    query = queries.start(queries.load(**options), again)
    wanted = Counter(row[3] for row in loader.rows(queue))

    def seen() -> Counter[bytes]:
        return Counter(row[3] for row in [*failing.rows, *again.rows])

    queries.until(query, lambda: set(seen()) == set(wanted))
    # The batch that was planned again is empty, and its messages came by their retry topic.
    assert again.seen[0] == (1, [])


def test_rows_of_a_batch_are_the_same_however_often_they_are_read(
    loader: Loader, topic: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 20)
    seen: list[list[tuple[bytes, str]]] = []

    def twice(frame: DataFrame, _batch_id: int) -> None:
        for _ in range(2):
            rows = frame.select("body", "receiptHandle").collect()
            seen.append(sorted((bytes(row[0]), row[1]) for row in rows))

    query = queries.start(queries.load(**POP), twice, availableNow=True)
    assert query.awaitTermination(120)
    assert seen[0] == seen[1]
    handles = [ReceiptHandle.parse(text) for _, text in seen[0]]
    assert sorted(handle.offset for handle in handles) == list(range(20))


def test_a_stream_pops_through_the_public_service_alone(
    loader: Loader, broker: Broker, topic: str, queries: Queries
) -> None:
    queues = loader.create(topic, 2)
    assert broker.endpoints is not None
    through = {"consumeMode": "pop", "group": f"G-{topic}", "endpoints": broker.endpoints}
    batches = Batches()
    query = queries.start(queries.load(**through), batches)
    # A new group begins behind the newest message: it must have asked once.
    queries.until(query, lambda: query.lastProgress is not None)
    for queue in queues:
        loader.put(queue, 60)
    queries.until(query, lambda: len(batches.rows) == 120)
    assert batches.rows == loader.rows(*queues)
    query.processAllAvailable()
    query.stop()
    assert PopConsumer(loader.cluster, f"G-{topic}", topic).receive() == []
