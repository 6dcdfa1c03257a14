"""A batch read of the messages with a key or an id: their places are looked up, and read alone."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.micro_batch import Split, divide
from pyspark_rocketmq.planning.selection import named_topics
from pyspark_rocketmq.read.batch_log import log_batch
from pyspark_rocketmq.read.partitions import RangePartition, range_partitions
from pyspark_rocketmq.read.task import ReadPlan
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.lookup.key_offsets import Place, offsets_of_key
from rocketmq_client.lookup.messages import find_by_id
from rocketmq_wire.model import OffsetRange, QueueId

# Several messages have one id when a producer sent them again, or as a batch.
_SAME_ID_MAX = 64


class LookupReader(DataSourceReader):
    """Looks up when it is planned; a look-up later needs a new `.load()`."""

    def __init__(self, options: ReadOptions, plan: ReadPlan) -> None:
        self._options, self._plan = options, plan

    def partitions(self) -> list[RangePartition]:
        """The tasks: one, unless more are asked for."""
        options = self._options
        cluster = open_cluster(connection_settings(options.connection))
        try:
            found = [
                place
                for topic in named_topics(options) or ()
                for place in _places(cluster, options, topic)
            ]
            addresses = cluster.broker_addresses()
        finally:
            cluster.close()
        split = Split(
            options.min_partitions, options.max_partitions or 1, options.max_records_per_partition
        )
        ranges = joined(found)
        tasks = divide(ranges, split)
        counts = ((piece.queue, len(piece)) for piece in ranges)
        log_batch("look-up", counts, len(tasks), is_shown=options.log_batches)
        return range_partitions(tasks, addresses)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task."""
        if not isinstance(partition, RangePartition):
            return iter(())  # Nothing was found.
        return partition.read(self._plan)


def _places(cluster: Cluster, options: ReadOptions, topic: str) -> list[Place]:
    if options.message_key is not None:
        return offsets_of_key(cluster, topic, options.message_key)
    assert options.message_id is not None
    found = find_by_id(cluster, topic, options.message_id, _SAME_ID_MAX)
    return sorted(
        (QueueId(topic, at.broker, at.message.queue_index), at.message.queue_offset) for at in found
    )


def joined(places: list[Place]) -> list[OffsetRange]:
    """Sorted places as ranges, neighbours together."""
    ranges: list[OffsetRange] = []
    for queue, offset in sorted(set(places)):
        if ranges and ranges[-1].queue == queue and ranges[-1].end == offset:
            ranges[-1] = OffsetRange(queue, ranges[-1].start, offset + 1)
        else:
            ranges.append(OffsetRange(queue, offset, offset + 1))
    return ranges
