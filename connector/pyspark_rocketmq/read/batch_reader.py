"""Spark's batch calls -> a plan whose late ends are resolved when read.

Spark plans once for each `.load()`, however often the DataFrame is used: so `earliest` and `latest`
stay words in the plan, and every use sees what is there then.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.micro_batch import PlannedQueue, Split, plan_batch
from pyspark_rocketmq.read.batch_log import log_batch
from pyspark_rocketmq.read.cluster_scan import first_scan, report_missing, require_topics
from pyspark_rocketmq.read.partitions import TaskPartition
from pyspark_rocketmq.read.starting_offsets import ending_places, starting_places
from pyspark_rocketmq.read.task import ReadPlan
from rocketmq_client.cluster import Cluster, open_cluster


def plan_queues(cluster: Cluster, options: ReadOptions) -> list[PlannedQueue]:
    """Where every queue of a batch read starts and ends as things are now."""
    survey = first_scan(cluster, options, is_whole=True, with_first_store_times=False)
    report_missing(survey)
    require_topics(survey, options)
    starts = starting_places(options, cluster, survey.bounds, "earliest")
    ends = ending_places(options, cluster, survey.bounds)
    return [
        PlannedQueue(
            queue,
            starts.offsets[queue],
            max(starts.offsets[queue], ends.offsets[queue]),
            is_start_late=queue in starts.late,
            is_end_late=queue in ends.late,
        )
        for queue in survey.queues
    ]


class BatchReader(DataSourceReader):
    """The batch reader of Spark 4.0 to 4.3."""

    def __init__(self, options: ReadOptions, plan: ReadPlan) -> None:
        self._options, self._plan = options, plan

    def partitions(self) -> list[TaskPartition]:
        """The tasks of the read; an empty list makes Spark ask for a task without a partition."""
        options = self._options
        cluster = open_cluster(connection_settings(options.connection))
        try:
            queues = self._narrowed(cluster, plan_queues(cluster, options))
            addresses = cluster.broker_addresses()
        finally:
            cluster.close()
        # Queues unknown so far belong to a read of whole topics up to what is there.
        has_late_end = options.ending_offsets == "latest" and not (
            options.ending_timestamp or options.ending_offsets_by_timestamp
        )
        topics = self._still_read({known.queue.topic for known in queues})
        late_topics = topics if has_late_end and options.assign is None else set()
        tasks = plan_batch(queues, Split.of(options), late_topics)
        counts = ((known.queue, known.end - known.start) for known in queues)
        log_batch("read", counts, len(tasks), is_shown=options.log_batches)
        return [TaskPartition(task, addresses) for task in tasks]

    def _narrowed(self, cluster: Cluster, queues: list[PlannedQueue]) -> list[PlannedQueue]:
        """What of the queues is read: all of it, unless filters say otherwise."""
        del cluster
        return queues

    def _still_read(self, topics: set[str]) -> set[str]:
        """The topics of whose queues that are yet to come something is read."""
        return topics

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task."""
        if not isinstance(partition, TaskPartition):
            return iter(())  # The plan was empty.
        return partition.read(self._plan)
