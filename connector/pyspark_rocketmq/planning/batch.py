"""The queues of a batch read -> its tasks, some of whose ends are resolved when read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.planning.split import Split, divide
from rocketmq_wire.model import OffsetRange, QueueId

# Ends that a batch resolves when it reads; users write the same numbers in JSON.
EARLIEST: Final = -2
LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """A part of a queue for one task; `start` may be EARLIEST and `end` LATEST."""

    queue: QueueId
    start: int
    end: int
    end_planned: int = 0
    """The queue's end when planned, if `end` is LATEST and there was something to read."""


@dataclass(frozen=True, slots=True)
class PlannedQueue:
    """A queue of a batch read: its planned range, and which ends are late."""

    queue: QueueId
    start: int
    end: int
    is_start_late: bool = False
    is_end_late: bool = False


@dataclass(frozen=True, slots=True)
class BatchTask:
    """One task of a batch read.

    The task also reads those queues of `unplanned_topics` that are not in `planned_queues`: they
    were created after the plan.
    """

    slices: tuple[QueueSlice, ...]
    unplanned_topics: tuple[str, ...] = ()
    planned_queues: tuple[QueueId, ...] = ()


def plan_batch(
    queues: Sequence[PlannedQueue], split: Split, late_topics: Iterable[str] = ()
) -> list[BatchTask]:
    """Divide a batch read into tasks.

    Only the first start and the last end of a queue may be late; inner cuts are numbers, so every
    offset is read exactly once, however the late ends are resolved. A task of the same topic also
    gets late queues that are empty so far, and the future queues of `late_topics`.
    """
    planned = {planned.queue: planned for planned in queues}
    ranges = [
        OffsetRange(known.queue, known.start, max(known.start, known.end)) for known in queues
    ]
    tasks = [
        tuple(_late_slice(piece, planned[piece.queue]) for piece in task)
        for task in divide(ranges, split)
    ]
    leftovers: dict[str, list[QueueSlice]] = {topic: [] for topic in sorted(set(late_topics))}
    for known in queues:
        if known.end <= known.start and known.is_end_late:
            piece = OffsetRange(known.queue, known.start, known.start)
            leftovers.setdefault(known.queue.topic, []).append(_late_slice(piece, known))
    late = set(late_topics)
    result = [BatchTask(task) for task in tasks]
    for topic, slices in leftovers.items():
        host = _host(result, topic, split.partitions_max)
        old = BatchTask(()) if host is None else result[host]
        new = BatchTask(
            (*old.slices, *slices),
            (*old.unplanned_topics, topic) if topic in late else old.unplanned_topics,
            (*old.planned_queues, *(q for q in sorted(planned) if q.topic == topic))
            if topic in late
            else old.planned_queues,
        )
        if host is None:
            result.append(new)
        else:
            result[host] = new
    return result


def _host(tasks: Sequence[BatchTask], topic: str, partitions_max: int | None) -> int | None:
    for index, task in enumerate(tasks):
        if any(piece.queue.topic == topic for piece in task.slices):
            return index
    return 0 if tasks and partitions_max is not None and len(tasks) >= partitions_max else None


def _late_slice(piece: OffsetRange, known: PlannedQueue) -> QueueSlice:
    is_end_late = known.is_end_late and piece.end == max(known.start, known.end)
    return QueueSlice(
        piece.queue,
        EARLIEST if known.is_start_late and piece.start == known.start else piece.start,
        LATEST if is_end_late else piece.end,
        known.end if is_end_late and known.end > known.start else 0,
    )
