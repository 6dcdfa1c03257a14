"""Spark's batch calls -> a plan whose late ends are resolved when read.

Spark plans once for each `.load()`, however often the DataFrame is used. So `earliest` and `latest`
stay words in the plan, and every use reads what is there then.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_rocketmq.boundary import bares_errors
from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.batch import PlannedQueue, plan_batch
from pyspark_rocketmq.planning.selection import named_topics
from pyspark_rocketmq.planning.split import Split, divide
from pyspark_rocketmq.read.batch_log import log_batch
from pyspark_rocketmq.read.cluster_scan import first_scan, require_selected
from pyspark_rocketmq.read.offset_search import (
    ResolvedOffsets,
    find_ending_offsets,
    find_starting_offsets,
)
from pyspark_rocketmq.read.plan import ReadPlan
from pyspark_rocketmq.read.task import RangePartition, TaskPartition, range_partitions
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.lookup import QueueOffset, find_by_id, offsets_of_key
from rocketmq_wire.model import OffsetRange, QueueId

# Several messages have the same id if a producer retried a send, or sent a batch.
_SAME_ID_MAX = 64
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp")


def plan_queues(cluster: Cluster, options: ReadOptions) -> list[PlannedQueue]:
    """Plan the range of every queue of a batch read, as of now."""
    scan = first_scan(cluster, options, is_whole=True, with_first_store_times=False)
    require_selected(scan, options, cluster)
    starts = find_starting_offsets(options, cluster, scan.bounds, "earliest")
    ends = find_ending_offsets(options, cluster, scan.bounds)
    _refuse_reversed(options, starts, ends)
    return [
        PlannedQueue(
            queue,
            starts.offsets[queue],
            max(starts.offsets[queue], ends.offsets[queue]),
            is_start_late=queue in starts.late,
            is_end_late=queue in ends.late,
        )
        for queue in scan.queues
    ]


def _refuse_reversed(options: ReadOptions, starts: ResolvedOffsets, ends: ResolvedOffsets) -> None:
    """Refuse numbers and times that start behind their end.

    A group may have committed more than the end. `latest` is later than a start found after it.
    """
    if str(options.starting_offsets).startswith("group"):
        return
    name = next((name for name in _ENDS if name in options.given), "endingOffsets")
    for queue, start in sorted(starts.offsets.items()):
        end = ends.offsets[queue]
        if end < start and queue not in ends.late:
            raise OptionError(name, f"ends {queue} at {end}, before its start at {start}")


class _PlannedReader(DataSourceReader):
    def __init__(self, options: ReadOptions, plan: ReadPlan) -> None:
        self._options = options
        self._plan = plan

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, (RangePartition, TaskPartition)):
            return iter(())  # The plan was empty.
        return partition.read(self._plan)


@bares_errors("partitions", "read")
class BatchReader(_PlannedReader):
    """The batch reader of Spark 4.0 to 4.3."""

    def partitions(self) -> list[TaskPartition]:
        options = self._options
        with open_cluster(connection_settings(options.connection)) as cluster:
            queues = self._narrowed(cluster, plan_queues(cluster, options))
            addresses = cluster.broker_addresses()
        # A read of whole topics up to the latest offset includes queues created after the plan.
        has_late_end = options.ending_offsets == "latest" and not (
            options.ending_timestamp or options.ending_offsets_by_timestamp
        )
        topics = self._open_topics({known.queue.topic for known in queues})
        late_topics = topics if has_late_end and options.assign is None else set()
        tasks = plan_batch(queues, Split.of(options), late_topics)
        counts = ((known.queue, known.end - known.start) for known in queues)
        log_batch("read", counts, len(tasks), is_shown=options.log_batches)
        return [TaskPartition(task, addresses) for task in tasks]

    def _narrowed(self, cluster: Cluster, queues: list[PlannedQueue]) -> list[PlannedQueue]:
        """Narrow what is read of the queues; without filters all of it."""
        del cluster
        return queues

    def _open_topics(self, topics: set[str]) -> set[str]:
        """Return the topics whose future queues are read, too."""
        return topics


@bares_errors("partitions", "read")
class LookupReader(_PlannedReader):
    """Reads messages with a key or an id alone. It looks up when Spark plans, once a `.load()`."""

    def partitions(self) -> list[RangePartition]:
        """Return the tasks: one, unless the options ask for more."""
        options = self._options
        with open_cluster(connection_settings(options.connection)) as cluster:
            found = [
                offset
                for topic in named_topics(options) or ()
                for offset in _find_offsets(cluster, options, topic)
            ]
            addresses = cluster.broker_addresses()
        split = Split(
            options.min_partitions, options.max_partitions or 1, options.max_records_per_partition
        )
        ranges = join_neighbours(found)
        tasks = divide(ranges, split)
        counts = ((piece.queue, len(piece)) for piece in ranges)
        log_batch("look-up", counts, len(tasks), is_shown=options.log_batches)
        return range_partitions(tasks, addresses)


def _find_offsets(cluster: Cluster, options: ReadOptions, topic: str) -> list[QueueOffset]:
    if options.message_key is not None:
        return offsets_of_key(cluster, topic, options.message_key)
    assert options.message_id is not None
    found = find_by_id(cluster, topic, options.message_id, _SAME_ID_MAX)
    return sorted(
        (QueueId(topic, at.broker, at.message.queue_index), at.message.queue_offset) for at in found
    )


def join_neighbours(offsets: list[QueueOffset]) -> list[OffsetRange]:
    """Join neighbouring offsets of a queue to ranges."""
    ranges: list[OffsetRange] = []
    for queue, offset in sorted(set(offsets)):
        if ranges and ranges[-1].queue == queue and ranges[-1].end == offset:
            ranges[-1] = OffsetRange(queue, ranges[-1].start, offset + 1)
        else:
            ranges.append(OffsetRange(queue, offset, offset + 1))
    return ranges
