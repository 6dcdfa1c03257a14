"""What Spark carries from the plan to a worker: the only thing that a task knows of its driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql.datasource import InputPartition

from pyspark_rocketmq.planning import BatchTask
from rocketmq_wire.model import OffsetRange, QueueId


class RangePartition(InputPartition):
    """Known ranges of queues, read one after the other."""

    def __init__(self, ranges: tuple[OffsetRange, ...], places: Mapping[str, str]) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.places = _places_of({wanted.queue for wanted in ranges}, places)

    def __reduce__(self) -> tuple[Callable[..., RangePartition], tuple[object, ...]]:
        # Plain values: the usual way costs ten times as much for each of thousands of queues.
        return _partition_of, ([(*r.queue, r.start, r.end) for r in self.ranges], self.places)


def _partition_of(
    plain: list[tuple[str, str, int, int, int]], places: dict[str, str]
) -> RangePartition:
    ranges = tuple(
        OffsetRange(QueueId(topic, broker, index), start, end)
        for topic, broker, index, start, end in plain
    )
    return RangePartition(ranges, places)


class TaskPartition(InputPartition):
    """A task of a batch read, some of whose ends are known only when it is read."""

    def __init__(self, task: BatchTask, places: Mapping[str, str]) -> None:
        super().__init__(task)
        self.task = task
        self.places = _places_of({piece.queue for piece in task.slices}, places)


def _places_of(queues: Iterable[QueueId], places: Mapping[str, str]) -> dict[str, str]:
    """Where the queues' brokers are: a worker that is new may find no name server to ask."""
    brokers = {queue.broker for queue in queues}
    return {broker: places[broker] for broker in sorted(brokers & places.keys())}
