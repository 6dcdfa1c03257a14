"""An idle stream asks its broker nothing: what it waits for, held pulls tell it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_rocketmq.source import RocketMQDataSource
from pyspark_rocketmq.stream.reader import StreamReader
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import PullMessages
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue

BODIES = StructType([StructField("body", BinaryType())])
QUEUES = [QueueId("orders", "broker-a", index) for index in range(3)]
STORED = 7
IDLE_CALLS = 10


def hold(request: Request[Reply]) -> Reply | BrokerError | None:
    """As a broker does with pulls that may wait, and nothing comes."""
    is_held = isinstance(request, PullMessages) and bool(request.suspend_ms)
    return ScriptedBroker.SILENCE if is_held else None


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    queues = {queue: SimulatedQueue(0, STORED) for queue in QUEUES}
    with ScriptedBroker(queues) as broker:
        broker.script = hold
        yield broker


@pytest.fixture
def reader(broker: ScriptedBroker) -> Iterator[StreamReader]:
    options = {
        "nameServer": broker.address,
        "subscribe": "orders",
        "startingOffsets": "latest",
        # What is asked by the clock: the search for new queues, and held pulls again.
        "discoveryIntervalMs": "1h",
        "suspendTimeoutMs": "5m",
    }
    reader = RocketMQDataSource(options).streamReader(BODIES)
    assert isinstance(reader, StreamReader)
    yield reader
    reader.stop()


def held(broker: ScriptedBroker) -> list[QueueId]:
    return sorted(request.queue for request in broker.pulls() if request.suspend_ms)


def test_an_idle_stream_holds_one_pull_a_queue_and_asks_nothing_else(
    broker: ScriptedBroker, reader: StreamReader
) -> None:
    start = reader.initialOffset()
    give_up_at = time.monotonic() + 30
    while held(broker) != QUEUES:
        assert time.monotonic() < give_up_at, f"held: {held(broker)}"
        assert reader.latestOffset(start) == start
    assert all(request.start == STORED for request in broker.pulls() if request.suspend_ms)
    asked = len(broker.requests)
    for _ in range(IDLE_CALLS):
        assert reader.latestOffset(start) == start
    assert broker.requests[asked:] == []
