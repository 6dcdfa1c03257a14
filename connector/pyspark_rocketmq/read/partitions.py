"""The partitions that Spark carries to the workers: all that a task knows of its driver."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_rocketmq.planning.batch import BatchTask
from pyspark_rocketmq.read.plan import ReadPlan
from pyspark_rocketmq.read.task import read_ranges, read_task
from rocketmq_wire.model import OffsetRange, QueueId


class RangePartition(InputPartition):
    """Known ranges of queues, read one after the other, and their brokers' addresses."""

    def __init__(self, ranges: tuple[OffsetRange, ...], addresses: Mapping[str, str]) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.addresses = addresses

    def counts(self) -> Iterator[tuple[QueueId, int]]:
        return ((piece.queue, len(piece)) for piece in self.ranges)

    def read(self, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        return read_ranges(plan, self.ranges, self.addresses)

    def __reduce__(self) -> tuple[Callable[..., RangePartition], tuple[object, ...]]:
        # Plain values: pickling the objects takes ten times as long for thousands of queues.
        return _partition_of, ([(*r.queue, r.start, r.end) for r in self.ranges], self.addresses)


def _partition_of(
    plain: list[tuple[str, str, int, int, int]], addresses: Mapping[str, str]
) -> RangePartition:
    ranges = tuple(
        OffsetRange(QueueId(topic, broker, index), start, end)
        for topic, broker, index, start, end in plain
    )
    return RangePartition(ranges, addresses)


def range_partitions(
    tasks: Sequence[tuple[OffsetRange, ...]], addresses: Mapping[str, str]
) -> list[RangePartition]:
    """Make a partition for each task, with the addresses that it needs."""
    # Most tasks read one queue: a dict for each took a third of the time of a plan of 10,000.
    alone = {broker: {broker: address} for broker, address in addresses.items()}
    return [
        RangePartition(
            task,
            alone.get(task[0].queue.broker, {})
            if len(task) == 1
            else _addresses_of((wanted.queue for wanted in task), addresses),
        )
        for task in tasks
    ]


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause garbage collection while a plan is made, since none of it is garbage.

    That saves 10 of the 62 ms of a plan of 10,000 queues.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class TaskPartition(InputPartition):
    """A task of a batch read, which resolves its late ends when it reads."""

    def __init__(self, task: BatchTask, addresses: Mapping[str, str]) -> None:
        super().__init__(task)
        self.task = task
        self.addresses = _addresses_of((piece.queue for piece in task.slices), addresses)

    def read(self, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        return read_task(plan, self.task, self.addresses)


def _addresses_of(queues: Iterable[QueueId], addresses: Mapping[str, str]) -> dict[str, str]:
    """Select the addresses of the queues' brokers: a new worker may reach no name server."""
    brokers = {queue.broker for queue in queues}
    return {broker: addresses[broker] for broker in sorted(brokers & addresses.keys())}
