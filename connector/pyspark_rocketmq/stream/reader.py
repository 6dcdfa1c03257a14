"""Spark's streaming calls -> a stream driver, and a worker's task -> its partition.

Two objects of this class live for a query: one in the stream process, which Spark asks for offsets
and partitions, and one pickled to the workers for `read`. Neither does anything when it is made:
Spark's planner, which outlives queries, makes readers too.
"""

from __future__ import annotations

import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import FrameType
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_rocketmq.boundary import bares_errors
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.read.batch_log import log_batch
from pyspark_rocketmq.read.plan import ReadPlan
from pyspark_rocketmq.stream.admission import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
    default_read_limit,
    warn_of_one_batch,
)
from pyspark_rocketmq.stream.driver import StreamDriver, StreamPartition, open_driver


@bares_errors("initialOffset", "prepareForTriggerAvailableNow", "latestOffset")
@bares_errors("reportLatestOffset", "partitions", "commit", "read")
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The micro-batch reader of Spark 4.0 to 4.3."""

    def __init__(self, options: ReadOptions, plan: ReadPlan) -> None:
        self._options = options
        self._plan = plan
        self._driver: StreamDriver | None = None
        self._last: dict[str, Any] | None = None
        self._has_planned = False
        self._may_be_logged = True
        """True until Spark asks for an end, or plans a batch: the first may be a logged one."""

    def __reduce__(self) -> tuple[Callable[[bytes], StreamReader], tuple[bytes]]:
        # Only what a worker needs travels, and each task unpickles it: without the cache that is a
        # fifth of the processor time of a task that reads a few messages.
        return _reader_of, (pickle.dumps((self._options, self._plan)),)

    # --- the stream process -----------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        initial = self._open_driver().initial_offset()
        if self._last is None:
            self._last = initial
        return initial

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the end of the next micro-batch. Spark 4.0 and 4.1 pass neither argument."""
        driver = self._open_driver()
        self._may_be_logged = False
        is_old_spark = start is None
        if start is None:
            start = self._last if self._last is not None else self.initialOffset()
            if not self._has_planned:
                self._has_planned = True
                warn_of_one_batch(self._options)
        self._last = driver.latest_offset(
            start, is_durable=not is_old_spark, is_unlimited=isinstance(limit, ReadAllAvailable)
        )
        return self._last

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_read_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:
        self._open_driver().prepare_available_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._driver is None else self._driver.report_latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if self._last is None:
            self._last = end  # A restart: Spark first asks for the logged batch.
        is_logged, self._may_be_logged = self._may_be_logged, False
        if start == end:
            return []
        tasks = self._open_driver().partitions(start, end, is_logged=is_logged)
        counts = (count for task in tasks for count in task.counts())
        log_batch("batch", counts, len(tasks), is_shown=self._options.log_batches)
        return cast(Sequence[InputPartition], tasks)

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the driver that Spark is done with everything before `end`."""
        if self._driver is not None:
            self._driver.confirm(end)

    def stop(self) -> None:
        if self._driver is not None:
            driver, self._driver = self._driver, None
            driver.close()

    def _open_driver(self) -> StreamDriver:
        if self._driver is None:
            _end_by_sigterm_alone()
            self._driver = open_driver(self._options)
        return self._driver

    # --- the workers ------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task: the same rows whenever it runs."""
        return cast(StreamPartition, partition).read(self._plan)


@lru_cache(maxsize=8)
def _unpickled(packed: bytes) -> tuple[ReadOptions, ReadPlan]:
    unpacked: tuple[ReadOptions, ReadPlan] = pickle.loads(packed)
    return unpacked


def _reader_of(packed: bytes) -> StreamReader:
    return StreamReader(*_unpickled(packed))


def _end_by_sigterm_alone() -> None:
    """Make the signal that ends a stream process run `stop()`, which Spark does not promise.

    Ctrl-C reaches this process, too; the driver decides what it ends.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _leave)
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
