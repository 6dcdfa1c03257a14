"""Files that brokers delete: reads distinguish expired from lost messages and count both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import LossPolicy, LossReason
from rocketmq_wire.model import Bounds, OffsetRange, QueueId, TopicConfig
from support.loader import Loader
from support.queries import Queries, rows_of
from support.real_cluster import VERSIONS, RealCluster, run_program

Read = Callable[..., DataFrame]

_JAVA = Path(__file__).parent / "java"


@pytest.fixture(scope="module", params=VERSIONS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealCluster]:
    """Of its own: brokers fail to clean up beside queues that other tests have left."""
    version: str = request.param
    with RealCluster(version, tmp_path_factory.mktemp("retention"), is_brief=True) as cluster:
        yield cluster


@pytest.fixture
def expiring(broker: RealCluster) -> Iterator[Callable[[], None]]:
    """Lets whatever is not in the newest log file expire; afterwards files are kept again."""
    address = broker.master.address

    def set_hours(hours: int) -> None:
        broker.admin(
            "updateBrokerConfig", "-b", address, "-k", "fileReservedTime", "-v", str(hours)
        )

    yield lambda: set_hours(0)
    set_hours(72)


def test_messages_that_retention_deleted_are_a_loss_with_numbers(
    broker: RealCluster,
    loader: Loader,
    topic: str,
    read: Read,
    queries: Queries,
    expiring: Callable[[], None],
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5)
    assert len(queries.available(startingOffsets="earliest").rows) == 5
    loader.put(queue, 495)
    starts = json.dumps({topic: {"0": 5}})
    planned = read(startingOffsets=starts)
    # Four of 4 MB end up in another log file, of 16 MB, than what is in front of them.
    filler = loader.create(f"{topic}-filler", 1)[0]
    run_program(
        broker.version, _JAVA / "Send.java", broker.name_server, filler.topic, "broker-a",
        *["large"] * 5,
    )  # fmt: skip
    loader.put(queue, 100)
    expiring()
    held = _bounds_after_retention(loader, queue)
    assert (held.start, held.end) == (500, 600)
    message = rf"OFFSET_EXPIRED\] topic={topic} .*requested=5 available=\[500,600\): 495 messages"
    with pytest.raises(PySparkException, match=message):
        queries.available()
    with pytest.raises(PySparkException, match=message):
        planned.count()
    assert rows_of(read()) == loader.rows(queue, start=500)
    assert queries.available(failOnDataLoss="false").rows == loader.rows(queue, start=500)
    assert queries.available().rows == []
    # Recreated and refilled beyond the checkpoint: recognised by the start of the old topic.
    loader.cluster.delete_topic(topic)
    loader.sent.clear()
    loader.create(topic, 1)
    loader.put(queue, 700)
    message = rf"TOPIC_RECREATED\] topic={topic} .*requested=600 available=\[0,700\)"
    with pytest.raises(PySparkException, match=message):
        queries.available()
    assert queries.available(failOnDataLoss="false").rows == loader.rows(queue)


def _bounds_after_retention(loader: Loader, queue: QueueId) -> Bounds:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        held = loader.cluster.bounds([queue])[queue]
        if isinstance(held, Bounds) and held.start > 0:
            return held
        time.sleep(0.5)
    raise AssertionError(f"nothing of {queue} expired: {held}")


def expire_all(
    broker: RealCluster, loader: Loader, topic: str, expiring: Callable[[], None]
) -> None:
    """Have every message of a topic expire: 20 MB follow them, and make the log roll twice."""
    (filler,) = loader.create(f"{topic}-filler", 1)
    run_program(
        broker.version, _JAVA / "Send.java", broker.name_server, filler.topic, "broker-a",
        *["large"] * 5,
    )  # fmt: skip
    expiring()
    _bounds_after_retention(loader, filler)


def test_a_queue_that_expired_whole_is_a_loss_with_numbers(
    broker: RealCluster, loader: Loader, topic: str, expiring: Callable[[], None]
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 20)
    expire_all(broker, loader, topic, expiring)
    # 4.9 keeps the start until the next file expires, and then goes past what it does not have.
    assert loader.cluster.bounds([queue]) == {queue: Bounds(0 if broker.is_4 else 20, 20)}
    with pytest.raises(RangeLostError) as caught:
        list(loader.cluster.read_ranges([OffsetRange(queue, 5, 20)], ReadSpec("readers")))
    loss = caught.value.loss
    assert (loss.start, loss.end, loss.reason) == (5, 20, LossReason.EXPIRED)
    assert loss.bounds == Bounds(20, 20)


def test_the_first_message_of_a_log_is_a_loss_and_no_other_message_once_it_expired(
    broker: RealCluster, loader: Loader, topic: str, read: Read
) -> None:
    node = broker.add_broker("broker-z", fileReservedTime="0")
    try:
        queue, filler = QueueId(topic, "broker-z", 0), QueueId(f"{topic}-filler", "broker-z", 0)
        for name in (queue.topic, filler.topic):
            loader.cluster.create_topic(TopicConfig(name, 1, 1), "broker-z")
        loader.put(queue, 20)
        (first,) = loader.cluster.pull(queue, 0, 1).records
        assert int.from_bytes(first[28:36], "big") == 0, "not at the start of the log"
        run_program(
            broker.version, _JAVA / "Send.java", broker.name_server, filler.topic, "broker-z",
            *["large"] * 5,
        )  # fmt: skip
        _bounds_after_retention(loader, filler)
        spec = ReadSpec("readers", loss_policy=LossPolicy.SKIP)
        chunks = list(loader.cluster.read_ranges([OffsetRange(queue, 0, 20)], spec))
        losses = [chunk.loss for chunk in chunks if chunk.loss is not None]
        assert len(losses) == len(chunks), "bytes came for messages that are gone"
        assert {loss.reason for loss in losses} == {LossReason.EXPIRED}
        assert sum(loss.end - loss.start for loss in losses) == 20
        loader.put(queue, 3)
        options = {"failOnDataLoss": "false", "startingOffsets": json.dumps({topic: {"0": 0}})}
        assert rows_of(read(**options)) == loader.rows(queue, start=20)
        assert rows_of(read(**options, tags="A")) == loader.rows(queue, start=20)
    finally:
        broker.remove(node)


def test_a_queue_that_clean_expired_cq_removed_restarts_and_the_reader_notices(
    broker: RealCluster, loader: Loader, topic: str, queries: Queries, expiring: Callable[[], None]
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 20)
    assert len(queries.available(startingOffsets="earliest").rows) == 20
    expire_all(broker, loader, topic, expiring)
    # All of it was read before it expired.
    assert queries.available().rows == []
    broker.admin("cleanExpiredCQ", "-b", broker.master.address)
    assert loader.cluster.bounds([queue]) == {queue: Bounds(0, 0)}
    loader.sent.clear()
    loader.put(queue, 3)
    # Nothing tells this from a topic deleted and made again: nobody is let pass unaware.
    message = rf"TOPIC_RECREATED\] topic={topic} .*requested=20 available=\[0,3\)"
    with pytest.raises(PySparkException, match=message):
        queries.available()
    assert queries.available(failOnDataLoss="false").rows == loader.rows(queue)
    assert queries.available().rows == []
