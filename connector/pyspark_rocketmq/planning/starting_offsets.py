"""Where a new read starts and where a batch ends: the user's words and numbers -> offsets. Pure.

`read.offset_search` asks the cluster for what is needed: bounds, offsets at times, committed
offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_rocketmq.errors import OptionError, raise_or_skip_loss
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.batch import EARLIEST, LATEST
from rocketmq_client.loss import judge_offset
from rocketmq_wire.model import Bounds, QueueId


@dataclass(frozen=True, slots=True)
class ResolvedOffsets:
    offsets: Mapping[QueueId, int]
    late: frozenset[QueueId] = frozenset()
    """The queues whose offset is earliest or latest: a batch resolves it when it reads."""


def at_start(bounds: Mapping[QueueId, Bounds]) -> ResolvedOffsets:
    return ResolvedOffsets({queue: held.start for queue, held in bounds.items()}, frozenset(bounds))


def at_end(bounds: Mapping[QueueId, Bounds]) -> ResolvedOffsets:
    return ResolvedOffsets({queue: held.end for queue, held in bounds.items()}, frozenset(bounds))


def at_numbers(
    options: ReadOptions, numbers: Mapping[QueueId, int], bounds: Mapping[QueueId, Bounds]
) -> ResolvedOffsets:
    """Resolve a number for each queue; -2 is earliest, -1 latest. Raises DataLossError."""
    offsets: dict[QueueId, int] = {}
    for queue, number in numbers.items():
        held = bounds[queue]
        offsets[queue] = {EARLIEST: held.start, LATEST: held.end}.get(number, number)
    late = frozenset(queue for queue, number in numbers.items() if number < 0)
    return ResolvedOffsets(_judged(options, offsets, bounds), late)


def at_times(
    name: str,
    found: Mapping[QueueId, int],
    times: Mapping[QueueId, int],
    bounds: Mapping[QueueId, Bounds],
    strategy: str,
) -> ResolvedOffsets:
    """Resolve a time for each queue, from the offsets `found` at these times.

    Raises OptionError if a queue has no message at its time or later, and `strategy` is `error`.
    """
    for queue, offset in found.items():
        if offset >= bounds[queue].end and strategy == "error":
            raise OptionError(
                name,
                f"= {times[queue]}: {queue} has no message stored then or later; set "
                "startingOffsetsByTimestampStrategy=latest to start at its end",
                "NO_MESSAGE_AT_TIME",
            )
    return ResolvedOffsets(found)


def at_committed(
    options: ReadOptions,
    committed: Mapping[QueueId, int | None],
    bounds: Mapping[QueueId, Bounds],
    fallback: str,
) -> ResolvedOffsets:
    """Resolve the group's committed offsets; `fallback` is for queues without one.

    Raises OptionError if the fallback is `error`, and DataLossError.
    """
    offsets: dict[QueueId, int] = {}
    for queue, offset in committed.items():
        if offset is not None:
            offsets[queue] = offset
        elif fallback == "error":
            raise OptionError(
                "startingOffsets",
                f"= group:error, and group {options.consumer.group} has no committed offset in "
                f"{queue}",
                "NO_PROGRESS",
            )
        else:
            held = bounds[queue]
            offsets[queue] = held.start if fallback == "earliest" else held.end
    return ResolvedOffsets(_judged(options, offsets, bounds))


def _judged(
    options: ReadOptions, offsets: Mapping[QueueId, int], bounds: Mapping[QueueId, Bounds]
) -> dict[QueueId, int]:
    fails = options.fail_on_data_loss
    judged: dict[QueueId, int] = {}
    for queue, offset in offsets.items():
        loss = judge_offset(queue, offset, bounds[queue])
        judged[queue] = (
            offset if loss is None else raise_or_skip_loss(loss, fail_on_data_loss=fails)
        )
    return judged
