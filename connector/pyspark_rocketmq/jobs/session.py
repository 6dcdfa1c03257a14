"""The session of a job, its preflight checks, and its end.

A wrong topic or path fails in one line before anything is done; a running query would report it
amid Spark's tracebacks. `run_job` makes failures one line on standard error.

Exit codes: 0 done, 1 failed, 2 wrong command line (`arguments`), 130 ended by Ctrl-C, or the job's
own. Only an unforeseen error keeps its traceback.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any, Final, NoReturn

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.consumer_group.listener import OffsetCommitListener
from pyspark_rocketmq.errors import JobError
from pyspark_rocketmq.options.definition import Use
from pyspark_rocketmq.options.parse import read_options, write_options
from pyspark_rocketmq.read.cluster_scan import first_scan, require_selected
from pyspark_rocketmq.sink.encoding.routes import RetryingQueues
from pyspark_rocketmq.source import RocketMQDataSource
from rocketmq_client.cluster import no_route, open_cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_wire.errors import RocketMQError, TopicNotFoundError
from rocketmq_wire.model import QueueId
from rocketmq_wire.plural import plural

_EXIT_INTERRUPTED: Final = 130
_SHOWN_MAX: Final = 5
# The line of an error of ours, anywhere in Spark's text.
_OURS: Final = re.compile(r"\[ROCKETMQ_[A-Z0-9_.]+\] .*")


def job_session(name: str) -> SparkSession:
    """The session that spark-submit prepared.

    Spark's own lookup does not search `--py-files`: such a source must be registered.
    """
    spark = SparkSession.builder.appName(name).getOrCreate()
    # Spark's own handler calls the JVM in the midst of another call.
    signal.signal(signal.SIGINT, _interrupt)
    if spark.conf.get("spark.submit.pyFiles", ""):
        spark.dataSource.register(RocketMQDataSource)
    return spark


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    # Py4j logs a traceback for the call that breaks, and for each one after it.
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def read_topics(
    name: str, options: dict[str, str], checkpoint: str, output: str | None = None
) -> DataFrame:
    """The stream of a job, in its session, into the files of `output`.

    Raises what the source would raise, before it starts, and JobError.
    """
    has_group = follows_group(options)
    spark = job_session(name)
    if output is not None:
        require_own_output(spark, output, checkpoint)
    require_topics_to_read(spark, options, checkpoint)
    if has_group:
        # The source commits when it is asked for the next batch; this also after the last one.
        spark.streams.addListener(OffsetCommitListener(options))
    return spark.readStream.format("rocketmq").options(**options).load()


def follows_group(options: dict[str, str]) -> bool:
    """True if a group's offsets are to follow, whichever of its names the option goes by."""
    return read_options(options).consumer.group is not None


def stop_session() -> None:
    """Stop Spark, so that its Python daemon does not end with a traceback."""
    spark = SparkSession._instantiatedSession
    if spark is not None:
        spark.stop()


def run_job(main: Callable[[], int | None], *, stop: Callable[[], None] = stop_session) -> NoReturn:
    """Run a job, stop its session and end the process with its exit code (None: 0)."""
    try:
        code = main()
    except KeyboardInterrupt:
        print("ended by Ctrl-C", file=sys.stderr, flush=True)
        # Ctrl-C reaches spark-submit's JVM as well, and ends it.
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            warnings.simplefilter("ignore")
            stop()
        sys.exit(_EXIT_INTERRUPTED)
    except Exception as error:
        message = one_line_of(error)
        if message is None:
            raise
        # The message comes last, below Spark's own at its end.
        stop()
        sys.exit(message)
    stop()
    sys.exit(code)


def one_line_of(error: Exception) -> str | None:
    """The one line of an error of ours; None for any other error.

    An error in a task or in a source's process arrives as Spark's error with a traceback inside;
    the last error of ours in it is the one that was raised.
    """
    if isinstance(error, (JobError, RocketMQError)):
        return str(error)
    ours = _OURS.findall(str(error))
    return ours[-1] if ours else None


@contextmanager
def refused_as(condition: str, message: str) -> Iterator[None]:
    """Raise JobError with `message` if Spark refuses with this error condition."""
    try:
        yield
    except PySparkException as error:
        if error.getCondition() != condition:
            raise
        raise JobError(message) from None


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


def require_own_output(spark: SparkSession, output: str, checkpoint: str) -> None:
    """Refuse the files of another query: Spark takes their batches for this query's own.

    A new query would count from batch 0 on, and the file sink would skip what has that number.
    """
    is_new = not _has_files(spark, f"{checkpoint}/offsets")
    if is_new and _has_files(spark, f"{output}/_spark_metadata"):
        raise JobError(
            f"{output} has the files of a query whose checkpoint is not {checkpoint}: Spark would "
            "skip as many batches as that query wrote, and their messages would be missing. Give "
            "that query's checkpoint, or another output"
        )


def _has_files(spark: SparkSession, path: str) -> bool:
    """True for a folder with files; Spark's readers do not see those of its own logs."""
    jvm: Any = spark.sparkContext._jvm
    folder = jvm.org.apache.hadoop.fs.Path(path)
    system = folder.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    return bool(system.exists(folder) and len(system.listStatus(folder)))


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
        require_selected(scan, parsed, cluster)


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
            raise no_route(cluster, absent)
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
