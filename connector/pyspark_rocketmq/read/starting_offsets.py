"""Where a new read starts and where a batch ends: the user's words and numbers -> offsets."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_rocketmq.errors import OptionError, raise_or_skip_loss
from pyspark_rocketmq.options.kinds import PerQueue
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.micro_batch import EARLIEST, LATEST
from pyspark_rocketmq.planning.selection import numbers_by_queue
from rocketmq_client.cluster import Cluster
from rocketmq_client.loss import judge_offset
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Bounds, QueueId
from rocketmq_wire.requests.offsets import Boundary

_log = logging.getLogger("pyspark_rocketmq")


@dataclass(frozen=True, slots=True)
class Places:
    """An offset for every queue, and the queues whose offset was given as earliest or latest."""

    offsets: Mapping[QueueId, int]
    late: frozenset[QueueId] = frozenset()


def starting_places(
    options: ReadOptions, cluster: Cluster, bounds: Mapping[QueueId, Bounds], default: str
) -> Places:
    """Where a new read starts. Raises OptionError, DataLossError and what the cluster raises."""
    strategy = options.starting_offsets_by_timestamp_strategy
    if options.starting_timestamp is not None:
        times = dict.fromkeys(bounds, options.starting_timestamp)
        return _at_times("startingTimestamp", cluster, bounds, times, strategy)
    if options.starting_offsets_by_timestamp is not None:
        name = "startingOffsetsByTimestamp"
        times = numbers_by_queue(name, options.starting_offsets_by_timestamp, list(bounds))
        return _at_times(name, cluster, bounds, times, strategy)
    wanted = options.starting_offsets or default
    if isinstance(wanted, PerQueue):
        numbers = numbers_by_queue("startingOffsets", wanted, list(bounds))
        return _checked(options, _numbered(numbers, bounds), bounds)
    if wanted == "earliest":
        return Places({queue: held.start for queue, held in bounds.items()}, frozenset(bounds))
    if wanted == "latest":
        return Places({queue: held.end for queue, held in bounds.items()}, frozenset(bounds))
    _, _, fallback = wanted.partition(":")
    return _checked(options, _at_progress(options, cluster, bounds, fallback or "earliest"), bounds)


def ending_places(
    options: ReadOptions, cluster: Cluster, bounds: Mapping[QueueId, Bounds]
) -> Places:
    """Where a batch read ends, exclusively; raises as `starting_places` does."""
    if options.ending_timestamp is not None:
        times = dict.fromkeys(bounds, options.ending_timestamp)
        return _at_times("endingTimestamp", cluster, bounds, times, "latest")
    if options.ending_offsets_by_timestamp is not None:
        name = "endingOffsetsByTimestamp"
        times = numbers_by_queue(name, options.ending_offsets_by_timestamp, list(bounds))
        return _at_times(name, cluster, bounds, times, "latest")
    if isinstance(options.ending_offsets, PerQueue):
        numbers = numbers_by_queue("endingOffsets", options.ending_offsets, list(bounds))
        return _checked(options, _numbered(numbers, bounds), bounds)
    return Places({queue: held.end for queue, held in bounds.items()}, frozenset(bounds))


def _numbered(numbers: Mapping[QueueId, int], bounds: Mapping[QueueId, Bounds]) -> Places:
    offsets: dict[QueueId, int] = {}
    for queue, number in numbers.items():
        held = bounds[queue]
        offsets[queue] = {EARLIEST: held.start, LATEST: held.end}.get(number, number)
    return Places(offsets, frozenset(queue for queue, number in numbers.items() if number < 0))


def _at_times(
    name: str,
    cluster: Cluster,
    bounds: Mapping[QueueId, Bounds],
    times: Mapping[QueueId, int],
    strategy: str,
) -> Places:
    answers = cluster.search_offsets(dict(times), Boundary.LOWER) if times else {}
    offsets: dict[QueueId, int] = {}
    for queue, answer in answers.items():
        if isinstance(answer, RocketMQError):
            raise answer
        if answer >= bounds[queue].end and strategy == "error":
            raise OptionError(
                name,
                f"= {times[queue]}: {queue} has no message stored then or later; set "
                "startingOffsetsByTimestampStrategy=latest to start at its end",
                "NO_MESSAGE_AT_TIME",
            )
        offsets[queue] = answer
    return Places(offsets)


def _at_progress(
    options: ReadOptions, cluster: Cluster, bounds: Mapping[QueueId, Bounds], fallback: str
) -> Places:
    group = options.consumer.group or ""
    offsets: dict[QueueId, int] = {}
    for queue, answer in cluster.committed_offsets(group, tuple(bounds)).items():
        if isinstance(answer, RocketMQError):
            raise answer
        if answer is not None:
            offsets[queue] = answer
        elif fallback == "error":
            raise OptionError(
                "startingOffsets",
                f"= group:error, and group {group} has no progress in {queue}",
                "NO_PROGRESS",
            )
        else:
            held = bounds[queue]
            offsets[queue] = held.start if fallback == "earliest" else held.end
    return Places(offsets)


def _checked(options: ReadOptions, places: Places, bounds: Mapping[QueueId, Bounds]) -> Places:
    offsets: dict[QueueId, int] = {}
    for queue, offset in places.offsets.items():
        loss = judge_offset(queue, offset, bounds[queue])
        if loss is None:
            offsets[queue] = offset
        else:
            fails = options.fail_on_data_loss
            offsets[queue] = raise_or_skip_loss(loss, fail_on_data_loss=fails)
    return Places(offsets, places.late)
