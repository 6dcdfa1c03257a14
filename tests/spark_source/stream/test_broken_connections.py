"""Behind a broken connection a stream sees what was acknowledged before it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.source import RocketMQDataSource
from pyspark_rocketmq.stream.reader import StreamReader
from pytest_rocketmq.faults import RocketMQFaults
from rocketmq_client.offsets.end_offset_watcher import HELD_QUEUES_MAX

BODIES = StructType([StructField("body", BinaryType())])
GROUP = {"group": "readers", "joinGroup": "true", "startingOffsets": "earliest"}


@pytest.fixture(params=["nameServer", "endpoints", "joinGroup", "many queues"])
def reader(
    request: pytest.FixtureRequest, rocketmq_faults: RocketMQFaults
) -> Iterator[StreamReader]:
    count = HELD_QUEUES_MAX + 1 if request.param == "many queues" else 4
    rocketmq_faults.create_topic("orders", queues=count)
    options = {**rocketmq_faults.options, "subscribe": "orders"}
    if request.param == "endpoints":
        del options["nameServer"], options["addressMap"]
        options["endpoints"] = rocketmq_faults.endpoints
    if request.param == "joinGroup":
        options.update(GROUP)
    reader = RocketMQDataSource(options).streamReader(BODIES)
    assert isinstance(reader, StreamReader)
    yield reader
    reader.stop()


def read_all(reader: StreamReader, at: dict[str, Any]) -> dict[str, Any]:
    """Ask for batches until the source says that nothing is new, as processAllAvailable does."""
    while (end := reader.latestOffset(at)) != at:
        at = end
    return at


@pytest.mark.parametrize("faults", [["reset"] * 4, ["restart"]], ids=["reset", "restart"])
def test_nothing_is_new_only_when_all_that_was_acknowledged_is_planned(
    rocketmq_faults: RocketMQFaults, reader: StreamReader, faults: list[str]
) -> None:
    at = reader.initialOffset()
    for count, fault in enumerate(faults, 1):
        for _ in range(2):  # Brokers hold pulls then, or their last answers are recent.
            at = reader.latestOffset(at)
        getattr(rocketmq_faults, fault)()
        rocketmq_faults.produce(["x"] * 50, topic="orders")
        at = read_all(reader, at)
        assert sum(SourceOffset.from_json(at).offsets.values()) == 50 * count
