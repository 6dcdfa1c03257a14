"""run_job: a job's main function -> its process, whose failures are one line on standard error.

Exit codes: 0 done, 1 it failed, 2 the command line is wrong (`job_arguments`), or what the job says
itself. Only what nobody foresaw keeps its traceback, for whoever has to find out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_rocketmq.errors import JobError
from rocketmq_wire.errors import RocketMQError

# How an error of ours begins, wherever Spark puts it: the rest of its line belongs to it.
_OURS: Final = re.compile(r"\[ROCKETMQ_[A-Z0-9_.]+\] .*")


def stop_session() -> None:
    """Without it Python's daemon would find Spark gone, and end with a traceback."""
    spark = SparkSession.getActiveSession()
    if spark is not None:
        spark.stop()


def run_job(main: Callable[[], int | None], *, stop: Callable[[], None] = stop_session) -> NoReturn:
    """Run a job, stop its session and end the process with its exit code (None: 0)."""
    try:
        code = main()
    except Exception as error:
        told = told_in_one_line(error)
        if told is None:
            raise
        # Below what Spark has to say at its end.
        stop()
        sys.exit(told)
    stop()
    sys.exit(code)


def told_in_one_line(error: Exception) -> str | None:
    """What an error comes down to, in one line; None: nobody foresaw it.

    What failed in a task or in a source's own process comes as Spark's error with its traceback
    inside, whose last error of ours is the one that was raised.
    """
    if isinstance(error, (JobError, RocketMQError)):
        return str(error)
    ours = _OURS.findall(str(error))
    return ours[-1] if ours else None


@contextmanager
def refused_as(condition: str, told: str) -> Iterator[None]:
    """Raise JobError, which says what to do, where Spark refuses with this error condition."""
    try:
        yield
    except PySparkException as error:
        if error.getCondition() != condition:
            raise
        raise JobError(told) from None
