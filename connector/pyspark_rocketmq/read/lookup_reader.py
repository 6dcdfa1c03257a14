"""A batch read of messages with a key or an id: it looks up their offsets and reads them alone."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.selection import named_topics
from pyspark_rocketmq.planning.split import Split, divide
from pyspark_rocketmq.read.batch_log import log_batch
from pyspark_rocketmq.read.partitions import RangePartition, range_partitions
from pyspark_rocketmq.read.plan import ReadPlan
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.lookup import QueueOffset, find_by_id, offsets_of_key
from rocketmq_wire.model import OffsetRange, QueueId

# Several messages have the same id if a producer retried a send, or sent a batch.
_SAME_ID_MAX = 64


class LookupReader(DataSourceReader):
    """Looks up when Spark plans; a later look-up needs a new `.load()`."""

    def __init__(self, options: ReadOptions, plan: ReadPlan) -> None:
        self._options = options
        self._plan = plan

    def partitions(self) -> list[RangePartition]:
        options = self._options
        cluster = open_cluster(connection_settings(options.connection))
        try:
            found = [
                offset
                for topic in named_topics(options) or ()
                for offset in _find_offsets(cluster, options, topic)
            ]
            addresses = cluster.broker_addresses()
        finally:
            cluster.close()
        split = Split(
            options.min_partitions, options.max_partitions or 1, options.max_records_per_partition
        )
        ranges = join_neighbours(found)
        tasks = divide(ranges, split)
        counts = ((piece.queue, len(piece)) for piece in ranges)
        log_batch("look-up", counts, len(tasks), is_shown=options.log_batches)
        return range_partitions(tasks, addresses)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())  # The look-up found nothing.
        return partition.read(self._plan)


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
