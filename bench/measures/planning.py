"""What the driver does for a micro-batch over very many queues, without any broker's I/O.

The stream process is asked as Spark asks it: every offset travels as JSON, every partition pickled.
Time is CPU time of the thread that answers, so a busy machine does not count.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from pyspark.sql.types import BinaryType, StructField, StructType

from bench.bed import Bed
from bench.machine import Figures
from bench.registry import measurement
from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.read.plan import make_plan
from pyspark_rocketmq.stream.offset_driver import Ports
from pyspark_rocketmq.stream.pull.driver import PullDriver
from pyspark_rocketmq.stream.reader import StreamReader
from rocketmq_wire.model import Bounds, QueueId
from support.fake_cluster import FakeQueue, FakeWorld

_TOPICS, _QUEUES_A_BROKER = 20, 20
_BATCHES = 9
_NEW_MESSAGES = 10


class _QueueWithEnd(FakeQueue):
    """A queue of which only the number of messages is known."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = [(1_700_000_000_000, "", b"")]
        self.end = 1_000_000

    @property
    def bounds(self) -> Bounds:
        return Bounds(0, self.end)


@measurement(
    "planning", "the driver's work for a micro-batch over 100 to 10,000 queues, without I/O"
)
def planning(bed: Bed) -> Iterator[Figures]:
    del bed
    for queue_count in (100, 1_000, 10_000):
        for name, options in (
            ("all there is", {}),
            ("limited", {"maxOffsetsPerTrigger": "50000", "maxPartitions": "64"}),
        ):
            yield {"what": name, "queues": queue_count, **_batches(queue_count, options)}


def _batches(queue_count: int, options: dict[str, str]) -> Figures:
    world = FakeWorld()
    queues = _queues(queue_count)
    world.queues = {queue: _QueueWithEnd() for queue in queues}
    world.topics = {queue.topic for queue in queues}
    reader = _reader(world, options)
    spent: dict[str, list[float]] = {}

    def timed(step: str, work: Callable[..., Any], *given: str) -> Any:
        began = time.thread_time()
        result = work(reader, *given)
        spent.setdefault(step, []).append((time.thread_time() - began) * 1_000)
        return result

    start = json.dumps(reader.initialOffset())
    tasks = 0
    try:
        for _ in range(_BATCHES):
            for held in world.queues.values():
                assert isinstance(held, _QueueWithEnd)
                held.end += _NEW_MESSAGES
            end = timed("latestOffset", _latest, start)
            timed("reportLatestOffset", lambda of: json.dumps(of.reportLatestOffset()))
            tasks = timed("partitions", _partitions, start, end)
            assert end != start
            start = end
    finally:
        reader.stop()
    steps = {step: median(times[1:]) for step, times in spent.items()}
    return {
        "tasks": tasks,
        "ms_a_batch": round(sum(steps.values()), 1),
        **{f"{step}_ms": round(ms, 1) for step, ms in steps.items()},
        "checkpoint_kb": round(len(start) / 1_000, 1),
    }


def _queues(count: int) -> list[QueueId]:
    brokers = count // (_TOPICS * _QUEUES_A_BROKER) or 1
    per_broker = count // (_TOPICS * brokers)
    return [
        QueueId(f"topic-{topic:03}", f"broker-{broker:03}", index)
        for topic in range(_TOPICS)
        for broker in range(brokers)
        for index in range(per_broker)
    ]


def _latest(reader: StreamReader, start: str) -> str:
    return json.dumps(reader.latestOffset(json.loads(start)))


def _partitions(reader: StreamReader, start: str, end: str) -> int:
    partitions = reader.partitions(json.loads(start), json.loads(end))
    for partition in partitions:
        pickle.dumps(partition, 5)
    return len(partitions)


def _reader(world: FakeWorld, options: dict[str, str]) -> StreamReader:
    given = {
        "nameServer": "h:1",
        "subscribePattern": "topic-.*",
        "startingOffsets": "latest",
        "discoveryIntervalMs": "600000",
        **options,
    }
    parsed = read_options(given)
    plan = make_plan(parsed, StructType([StructField("body", BinaryType())]))
    reader = StreamReader(parsed, plan)
    ports = Ports(world.open_cluster, world.open_watch)  # type: ignore[arg-type]
    reader._driver = PullDriver(parsed, ports)
    return reader
