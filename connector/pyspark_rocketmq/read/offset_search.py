"""Where a new read starts and where a batch ends: words, numbers and times -> offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_rocketmq.errors import OptionError, raise_or_skip_loss
from pyspark_rocketmq.options.kinds import PerQueue
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.batch import EARLIEST, LATEST
from pyspark_rocketmq.planning.selection import numbers_by_queue
from rocketmq_client.cluster import Cluster
from rocketmq_client.loss import judge_offset
from rocketmq_wire.errors import RocketMQError, raise_first
from rocketmq_wire.model import Bounds, QueueId
from rocketmq_wire.requests.offsets import Boundary
from rocketmq_wire.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class ResolvedOffsets:
    offsets: Mapping[QueueId, int]
    late: frozenset[QueueId] = frozenset()
    """The queues whose offset is earliest or latest: a batch resolves it when it reads."""


def _at_start(bounds: Mapping[QueueId, Bounds]) -> ResolvedOffsets:
    return ResolvedOffsets({queue: held.start for queue, held in bounds.items()}, frozenset(bounds))


def _at_end(bounds: Mapping[QueueId, Bounds]) -> ResolvedOffsets:
    return ResolvedOffsets({queue: held.end for queue, held in bounds.items()}, frozenset(bounds))


def _at_numbers(
    name: str, options: ReadOptions, given: PerQueue, bounds: Mapping[QueueId, Bounds]
) -> ResolvedOffsets:
    """Resolve a number for each queue; -2 is earliest, -1 latest.

    Raises OptionError, and DataLossError.
    """
    numbers = numbers_by_queue(name, given, list(bounds))
    offsets: dict[QueueId, int] = {}
    for queue, number in numbers.items():
        held = bounds[queue]
        if number > held.end and options.fail_on_data_loss:
            raise OptionError(
                name,
                f"has offset {number} for {queue}, which ends at {held.end}: correct it. If it was "
                "right once, the broker lost messages, or the topic was created again; "
                f"failOnDataLoss=false takes {held.end}",
            )
        offsets[queue] = {EARLIEST: held.start, LATEST: held.end}.get(number, number)
    late = frozenset(queue for queue, number in numbers.items() if number < 0)
    return ResolvedOffsets(_judged(options, offsets, bounds), late)


def _at_committed(
    options: ReadOptions,
    cluster: Cluster,
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
            group = options.consumer.group or ""
            is_unknown = all(number is None for number in committed.values())
            hint = _similar_group(cluster, group) if is_unknown else ""
            problem = f"= group:error, and group {group} has no committed offset in {queue}"
            raise OptionError("startingOffsets", f"{problem}{hint and f'.{hint}'}", "NO_PROGRESS")
        else:
            held = bounds[queue]
            offsets[queue] = held.start if fallback == "earliest" else held.end
    return ResolvedOffsets(_judged(options, offsets, bounds))


def _similar_group(cluster: Cluster, group: str) -> str:
    try:
        return did_you_mean(group, cluster.groups())
    except RocketMQError:
        return ""


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


def find_starting_offsets(
    options: ReadOptions, cluster: Cluster, bounds: Mapping[QueueId, Bounds], default: str
) -> ResolvedOffsets:
    """Find where a new read starts. Raises OptionError, DataLossError and the cluster's errors."""
    strategy = options.starting_offsets_by_timestamp_strategy
    if options.starting_timestamp is not None:
        times = dict.fromkeys(bounds, options.starting_timestamp)
        return _find_at_times("startingTimestamp", cluster, bounds, times, strategy)
    if options.starting_offsets_by_timestamp is not None:
        name = "startingOffsetsByTimestamp"
        times = numbers_by_queue(name, options.starting_offsets_by_timestamp, list(bounds))
        return _find_at_times(name, cluster, bounds, times, strategy)
    wanted = options.starting_offsets or default
    if isinstance(wanted, PerQueue):
        return _at_numbers("startingOffsets", options, wanted, bounds)
    if wanted == "earliest":
        return _at_start(bounds)
    if wanted == "latest":
        return _at_end(bounds)
    _, _, fallback = wanted.partition(":")
    committed = raise_first(cluster.committed_offsets(options.consumer.group or "", tuple(bounds)))
    return _at_committed(options, cluster, committed, bounds, fallback or "earliest")


def find_ending_offsets(
    options: ReadOptions, cluster: Cluster, bounds: Mapping[QueueId, Bounds]
) -> ResolvedOffsets:
    """Find where a batch read ends, exclusively; raises as `find_starting_offsets` does."""
    if options.ending_timestamp is not None:
        times = dict.fromkeys(bounds, options.ending_timestamp)
        return _find_at_times("endingTimestamp", cluster, bounds, times, "latest")
    if options.ending_offsets_by_timestamp is not None:
        name = "endingOffsetsByTimestamp"
        times = numbers_by_queue(name, options.ending_offsets_by_timestamp, list(bounds))
        return _find_at_times(name, cluster, bounds, times, "latest")
    if isinstance(options.ending_offsets, PerQueue):
        return _at_numbers("endingOffsets", options, options.ending_offsets, bounds)
    return _at_end(bounds)


def _find_at_times(
    name: str,
    cluster: Cluster,
    bounds: Mapping[QueueId, Bounds],
    times: Mapping[QueueId, int],
    strategy: str,
) -> ResolvedOffsets:
    """Find the offset at each queue's time.

    Raises OptionError if a queue has no message at its time or later, and `strategy` is `error`.
    """
    found = raise_first(cluster.search_offsets(dict(times), Boundary.LOWER)) if times else {}
    for queue, offset in found.items():
        if offset >= bounds[queue].end and strategy == "error":
            raise OptionError(
                name,
                f"= {times[queue]}: {queue} has no message stored then or later; set "
                "startingOffsetsByTimestampStrategy=latest to start at its end",
                "NO_MESSAGE_AT_TIME",
            )
    return ResolvedOffsets(found)
