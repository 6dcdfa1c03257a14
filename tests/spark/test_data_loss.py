"""Expired, truncated, deleted, shrunken and recreated topics, reported with numbers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.storage.disk.files import OsFiles
from rocketmq_broker.storage.settings import FlushMode, StoreConfig
from rocketmq_broker.storage.store import Store
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Bounds, TopicConfig
from support.loader import Loader
from support.queries import Batches, Queries

_SEGMENT = 64 * 1024


def read_half(loader: Loader, topic: str, queries: Queries) -> None:
    """A checkpoint at 10 of a queue of 10, another queue being empty."""
    queues = loader.create(topic, 2)
    loader.put(queues[0], 10)
    assert len(queries.available(startingOffsets="earliest").rows) == 10


def test_a_deleted_topic(loader: Loader, topic: str, queries: Queries) -> None:
    loader.create(f"{topic}-other", 1)
    read_half(loader, topic, queries)
    loader.cluster.delete_topic(topic)
    with pytest.raises(PySparkException, match=rf"TOPIC_DELETED\] topic={topic}.*requested="):
        queries.available()
    assert queries.available(failOnDataLoss="false").rows == []


def test_a_topic_deleted_after_a_batch_read_was_planned(
    loader: Loader, topic: str, read: Callable[..., DataFrame]
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 10)
    strict, lenient = read(), read(failOnDataLoss="false")
    assert (strict.count(), lenient.count()) == (10, 10)
    loader.cluster.delete_topic(topic)
    with pytest.raises(PySparkException, match=rf"TOPIC_DELETED\] topic={topic}"):
        strict.count()
    assert lenient.count() == 0


def test_a_topic_recreated_with_less(loader: Loader, topic: str, queries: Queries) -> None:
    read_half(loader, topic, queries)
    loader.cluster.delete_topic(topic)
    loader.sent.clear()
    queues = loader.create(topic, 2)
    loader.put(queues[0], 4)
    with pytest.raises(
        PySparkException, match=r"TOPIC_RECREATED\].*requested=10 available=\[0,4\)"
    ):
        queries.available()
    assert queries.available(failOnDataLoss="false").rows == loader.rows(*queues)
    loader.put(queues[0], 1)
    assert queries.available().rows == loader.rows(queues[0], start=4)


def test_a_topic_recreated_and_refilled_beyond_the_checkpoint(
    loader: Loader, topic: str, queries: Queries
) -> None:
    read_half(loader, topic, queries)
    loader.cluster.delete_topic(topic)
    loader.sent.clear()
    queues = loader.create(topic, 2)
    loader.put(queues[0], 25)
    with pytest.raises(PySparkException, match=r"TOPIC_RECREATED\].*requested=10.*\[0,25\)"):
        queries.available()
    assert queries.available(failOnDataLoss="false").rows == loader.rows(*queues)
    loader.put(queues[0], 1)
    assert queries.available().rows == loader.rows(*queues, start=25)


@pytest.mark.parametrize("count", [60, 12])
def test_a_topic_recreated_between_two_batches_of_available_now(
    loader: Loader, topic: str, queries: Queries, count: int
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 50)
    old = loader.rows(queue, end=10)

    class Recreating(Batches):
        def __call__(self, frame: DataFrame, batch_id: int) -> None:
            super().__call__(frame, batch_id)
            if batch_id == 0:
                loader.cluster.delete_topic(topic)
                loader.sent.clear()
                loader.create(topic, 1)
                loader.put(queue, count)

    batches = Recreating()
    began = time.monotonic()
    with pytest.raises(PySparkException, match=r"TOPIC_RECREATED\].*Set .* continue from 0\."):
        queries.run(batches, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert batches.rows == old
    assert time.monotonic() - began < 45, "it waited for messages that cannot come"


def test_a_topic_with_fewer_queues(loader: Loader, topic: str, queries: Queries) -> None:
    queues = loader.create(topic, 2)
    loader.put(queues[1], 10)
    batches = Batches()
    frame = queries.load(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    query = queries.start(frame, batches, processingTime="1 hour")
    # Not the rows but the report says that the batch is committed.
    queries.until(query, lambda: query.lastProgress is not None)
    assert batches.sizes == [4]
    query.stop()
    loader.cluster.create_topic(TopicConfig(topic, 1, 1))
    with pytest.raises(PySparkException, match=r"QUEUE_REMOVED\].*queue=1 requested=4"):
        queries.available()
    loader.put(queues[0], 3)
    assert queries.available(failOnDataLoss="false").rows == loader.rows(queues[0])


# --- retention --------------------------------------------------------------------------------


class AgingBroker:
    """A broker of its own, whose old log files can be made to expire."""

    def __init__(self, folder: Path) -> None:
        # A full disk must not make the broker delete files before the test asks for it.
        self.config = BrokerConfig(
            data_dir=str(folder),
            flush="async",
            commit_log_file_bytes=_SEGMENT,
            disk_use_percent_max=100,
        )
        self.broker = Broker(self.config).start()

    def expire(self) -> None:
        """Let every log file but the last pass its age, between a stop and a start."""
        self.broker.stop()
        store_config = StoreConfig(flush=FlushMode.ASYNC, segment_size=_SEGMENT)
        later_ms = int(time.time() * 1_000) + 1_000 * 3_600_000
        store = Store.open(OsFiles(Path(self.config.data_dir)), store_config, later_ms)
        try:
            assert store.clean(later_ms).log_files > 0
        finally:
            store.close()
        self.broker = Broker(self.config).start()


@pytest.fixture
def aging(tmp_path: Path) -> Iterator[AgingBroker]:
    aging = AgingBroker(tmp_path / "aging")
    yield aging
    aging.broker.stop()


def test_expired_messages(
    spark: SparkSession, aging: AgingBroker, topic: str, tmp_path: Path
) -> None:
    name_server = aging.broker.name_server
    queries = Queries(spark, name_server, topic, tmp_path)
    with open_cluster(ConnectionSettings(name_servers=(name_server,))) as cluster:
        loader = Loader(cluster)
        (queue,) = loader.create(topic, 1)
        loader.put(queue, 5)
        assert len(queries.available(startingOffsets="earliest").rows) == 5
        loader.put(queue, 1_500)
        starts = json.dumps({topic: {"0": 5}})
        frame = spark.read.format("rocketmq").options(
            nameServer=name_server, subscribe=topic, startingOffsets=starts
        )
        planned, lenient = frame.load(), frame.option("failOnDataLoss", "false").load()
        assert (planned.count(), lenient.count()) == (1_500, 1_500)
        aging.expire()
        assert aging.broker.name_server == name_server
        held = cluster.bounds([queue])[queue]
        assert isinstance(held, Bounds)
        assert held.start > 5
        message = re.escape(
            f"OFFSET_EXPIRED] topic={topic} broker=broker-a queue=0 requested=5 "
            f"available=[{held.start},1505): {held.start - 5} messages are gone"
        )
        # Found by the planner at a restart, and by the worker of a batch planned before.
        with pytest.raises(PySparkException, match=message):
            queries.available()
        with pytest.raises(PySparkException, match=message):
            planned.count()
        assert lenient.count() == 1_505 - held.start
        survivors = queries.available(failOnDataLoss="false").rows
        assert survivors == loader.rows(queue, start=held.start)
        assert queries.available().rows == []
        # Recreated and refilled beyond the checkpoint: recognised by the start of the old topic.
        cluster.delete_topic(topic)
        loader.sent.clear()
        loader.create(topic, 1)
        loader.put(queue, 1_600)
        with pytest.raises(PySparkException, match=r"TOPIC_RECREATED\].*requested=1505"):
            queries.available()
        assert queries.available(failOnDataLoss="false").rows == loader.rows(queue)
    queries.stop()
