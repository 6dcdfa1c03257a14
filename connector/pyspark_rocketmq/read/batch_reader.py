"""Spark's batch calls -> a plan whose late ends are resolved when read.

Spark plans once for each `.load()`, however often the DataFrame is used. So `earliest` and `latest`
stay words in the plan, and every use reads what is there then.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.batch import PlannedQueue, plan_batch
from pyspark_rocketmq.planning.split import Split
from pyspark_rocketmq.read.batch_log import log_batch
from pyspark_rocketmq.read.cluster_scan import first_scan, report_missing, require_topics
from pyspark_rocketmq.read.offset_search import find_ending_offsets, find_starting_offsets
from pyspark_rocketmq.read.partitions import TaskPartition
from pyspark_rocketmq.read.plan import ReadPlan
from rocketmq_client.cluster import Cluster, open_cluster


def plan_queues(cluster: Cluster, options: ReadOptions) -> list[PlannedQueue]:
    """Plan the range of every queue of a batch read, as of now."""
    scan = first_scan(cluster, options, is_whole=True, with_first_store_times=False)
    report_missing(scan)
    require_topics(scan, options)
    starts = find_starting_offsets(options, cluster, scan.bounds, "earliest")
    ends = find_ending_offsets(options, cluster, scan.bounds)
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


class BatchReader(DataSourceReader):
    """The batch reader of Spark 4.0 to 4.3."""

    def __init__(self, options: ReadOptions, plan: ReadPlan) -> None:
        self._options = options
        self._plan = plan

    def partitions(self) -> list[TaskPartition]:
        options = self._options
        cluster = open_cluster(connection_settings(options.connection))
        try:
            queues = self._narrowed(cluster, plan_queues(cluster, options))
            addresses = cluster.broker_addresses()
        finally:
            cluster.close()
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

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TaskPartition):
            return iter(())  # The plan was empty.
        return partition.read(self._plan)
