"""Asks the cluster where a new read starts and where a batch ends.

`planning.starting_offsets` turns the answers into offsets.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_rocketmq.options.kinds import PerQueue
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.selection import numbers_by_queue
from pyspark_rocketmq.planning.starting_offsets import (
    ResolvedOffsets,
    at_committed,
    at_end,
    at_numbers,
    at_start,
    at_times,
)
from rocketmq_client.cluster import Cluster
from rocketmq_wire.errors import raise_first
from rocketmq_wire.model import Bounds, QueueId
from rocketmq_wire.requests.offsets import Boundary


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
        numbers = numbers_by_queue("startingOffsets", wanted, list(bounds))
        return at_numbers(options, numbers, bounds)
    if wanted == "earliest":
        return at_start(bounds)
    if wanted == "latest":
        return at_end(bounds)
    _, _, fallback = wanted.partition(":")
    committed = raise_first(cluster.committed_offsets(options.consumer.group or "", tuple(bounds)))
    return at_committed(options, committed, bounds, fallback or "earliest")


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
        numbers = numbers_by_queue("endingOffsets", options.ending_offsets, list(bounds))
        return at_numbers(options, numbers, bounds)
    return at_end(bounds)


def _find_at_times(
    name: str,
    cluster: Cluster,
    bounds: Mapping[QueueId, Bounds],
    times: Mapping[QueueId, int],
    strategy: str,
) -> ResolvedOffsets:
    found = raise_first(cluster.search_offsets(dict(times), Boundary.LOWER)) if times else {}
    return at_times(name, found, times, bounds, strategy)
