"""The session of a job, and its end: `run_job` makes failures one line on standard error.

Exit codes: 0 done, 1 failed, 2 wrong command line (`arguments`), or the job's own. Only an
unforeseen error keeps its traceback.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq.consumer_group.listener import OffsetCommitListener
from pyspark_rocketmq.errors import JobError
from pyspark_rocketmq.jobs.preflight import require_topics_to_read
from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.source import RocketMQDataSource
from rocketmq_wire.errors import RocketMQError

# The line of an error of ours, anywhere in Spark's text.
_OURS: Final = re.compile(r"\[ROCKETMQ_[A-Z0-9_.]+\] .*")


def job_session(name: str) -> SparkSession:
    """The session that spark-submit prepared.

    Spark's own lookup does not search `--py-files`: such a source must be registered.
    """
    spark = SparkSession.builder.appName(name).getOrCreate()
    if spark.conf.get("spark.submit.pyFiles", ""):
        spark.dataSource.register(RocketMQDataSource)
    return spark


def read_topics(name: str, options: dict[str, str], checkpoint: str) -> DataFrame:
    """The stream of a job, in its session. Raises what the source would raise, before it starts."""
    has_group = follows_group(options)
    spark = job_session(name)
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
    spark = SparkSession.getActiveSession()
    if spark is not None:
        spark.stop()


def run_job(main: Callable[[], int | None], *, stop: Callable[[], None] = stop_session) -> NoReturn:
    """Run a job, stop its session and end the process with its exit code (None: 0)."""
    try:
        code = main()
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
