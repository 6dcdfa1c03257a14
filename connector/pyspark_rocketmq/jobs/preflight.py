"""Preflight checks of a job: a wrong topic or path fails in one line before anything is done.

A running query would report it amid Spark's tracebacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.errors import JobError
from pyspark_rocketmq.options.definition import Use
from pyspark_rocketmq.options.parse import read_options, write_options
from pyspark_rocketmq.read.cluster_scan import first_scan, no_route, require_topics
from pyspark_rocketmq.sink.encoding.routes import RetryingQueues
from rocketmq_client.cluster import open_cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_wire.errors import TopicNotFoundError
from rocketmq_wire.model import QueueId
from rocketmq_wire.plural import plural

_SHOWN_MAX: Final = 5


def files_in(spark: SparkSession, path: str) -> list[str] | None:
    """The files of a folder on any file system; None if there is no such folder."""
    try:
        # Named twice: Spark would take a single path for a stream's output, and log Java's
        # traceback if there is none.
        reader = spark.read.option("recursiveFileLookup", True)
        return reader.text([path, path]).inputFiles()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None


def require_topics_to_read(
    spark: SparkSession, options: Mapping[str, str], checkpoint: str
) -> None:
    """Look up a new query's topics as its source will; raises what the source would raise.

    A query with a checkpoint is not checked: the checkpoint tells it what a missing topic means,
    and it waits for an unavailable cluster.
    """
    parsed = read_options(options, Use.STREAM)
    if files_in(spark, f"{checkpoint}/offsets"):
        return
    with open_cluster(connection_settings(parsed.connection)) as cluster:
        scan = first_scan(cluster, parsed, is_whole=True, with_first_store_times=False)
    require_topics(scan, parsed)


def queues_to_write(
    options: Mapping[str, str], topics: Iterable[str] | None = None
) -> dict[str, tuple[QueueId, ...]]:
    """The writable queues of each topic; without `topics`, of the topic in a write's options.

    Raises OptionError, TopicNotFoundError for all missing topics, and connection errors.
    """
    parsed = write_options(options)
    found: dict[str, tuple[QueueId, ...]] = {}
    absent = []
    # A person waits for the job to start: do not retry as long as a task would.
    settings = replace(
        connection_settings(parsed.connection), outage_ms=parsed.connection.connect_timeout_ms
    )
    with open_cluster(settings) as cluster:
        producer = RetryingQueues(Producer(cluster), cluster, had_topics=False)
        for topic in (parsed.subscribe or ()) if topics is None else topics:
            try:
                found[topic] = tuple(producer.queues(topic))
            except TopicNotFoundError:  # noqa: PERF203 - each try costs a round trip.
                absent.append(topic)
    if absent:
        raise no_route(absent)
    return found


def require_rows_fit(rows: DataFrame, names: list[str], queues: Collection[QueueId]) -> None:
    """Raise JobError if these columns of the rows name a queue that the topic does not have.

    A row without a queue goes to any.
    """
    has_broker = "brokerName" in names
    known = {(queue.index, queue.broker if has_broker else None) for queue in queues}
    wanted = {
        (row["queueId"], row["brokerName"] if has_broker else None)
        for row in rows.select(*names).distinct().collect()
        if row["queueId"] is not None
    }
    unfit = sorted(wanted - known, key=str)
    if not unfit:
        return
    shown = [f"{index} of {broker}" if has_broker else f"{index}" for index, broker in unfit]
    more = ", ..." if len(unfit) > _SHOWN_MAX else ""
    topic = next(iter(queues)).topic
    raise JobError(
        f"the files name queue {', '.join(shown[:_SHOWN_MAX])}{more}, and {topic} has "
        f"{plural(len(queues), 'queue')} for writing. Nothing was sent. Give it more (rmq topic "
        f"alter {topic} --queues N), or leave out --keep-queues."
    )
