"""What Spark carries from the plan to a worker: the only thing that a task knows of its driver."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.datasource import InputPartition

from pyspark_rocketmq.planning import BatchTask
from rocketmq_wire.model import OffsetRange, QueueId


class RangePartition(InputPartition):
    """Known ranges of queues, read one after the other."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges

    def __reduce__(self) -> tuple[Callable[..., RangePartition], tuple[object, ...]]:
        # Plain values: the usual way costs ten times as much for each of thousands of queues.
        return _partition_of, ([(*r.queue, r.start, r.end) for r in self.ranges],)


def _partition_of(plain: list[tuple[str, str, int, int, int]]) -> RangePartition:
    return RangePartition(
        tuple(
            OffsetRange(QueueId(topic, broker, index), start, end)
            for topic, broker, index, start, end in plain
        )
    )


class TaskPartition(InputPartition):
    """A task of a batch read, some of whose ends are known only when it is read."""

    def __init__(self, task: BatchTask) -> None:
        super().__init__(task)
        self.task = task
