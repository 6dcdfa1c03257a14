"""What Spark carries from the plan to a worker: the only thing that a task knows of its driver."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from pyspark_rocketmq.planning import BatchTask
from rocketmq_wire.model import OffsetRange


class RangePartition(InputPartition):
    """Known ranges of queues, read one after the other."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class TaskPartition(InputPartition):
    """A task of a batch read, some of whose ends are known only when it is read."""

    def __init__(self, task: BatchTask) -> None:
        super().__init__(task)
        self.task = task
