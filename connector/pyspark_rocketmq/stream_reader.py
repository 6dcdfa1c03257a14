"""Spark's streaming calls -> the stream driver, and a worker's task -> its ranges.

Two objects of this class live for a query: one in the stream process, asked for offsets and
partitions, and one pickled to the workers for `read`. Neither does anything when it is made: it is
also made in Spark's planner, which outlives queries.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_rocketmq.offsets import SourceOffset
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.partition_read import ReadPlan, read_ranges
from pyspark_rocketmq.partitions import RangePartition
from pyspark_rocketmq.planning import Split, divide, ranges_between
from pyspark_rocketmq.spark_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    from pyspark_rocketmq.stream_driver import StreamDriver


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The micro-batch reader of Spark 4.0 to 4.3."""

    def __init__(self, options: ReadOptions, plan: ReadPlan) -> None:
        self._options, self._plan = options, plan
        self._driver: StreamDriver | None = None
        self._last: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Only what a worker needs travels.
        return {**self.__dict__, "_driver": None, "_last": None}

    # --- the stream process -----------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        initial = self._begun().initial_offset()
        if self._last is None:
            self._last = initial
        return initial

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The end of the next micro-batch. Spark 4.0 and 4.1 give neither start nor limit."""
        driver = self._begun()
        if start is None:
            # There the last end is ours to remember, and the limits ours to keep.
            start = self._last if self._last is not None else self.initialOffset()
        is_unlimited = isinstance(limit, ReadAllAvailable)
        self._last = driver.latest_offset(start, is_unlimited=is_unlimited)
        return self._last

    def getDefaultReadLimit(self) -> ReadLimit:
        """Tells an ordinary call from Trigger.Once, which has no limit. The limits are our own."""
        if not self._options.has_limits:
            return ReadAllAvailable()
        return ReadMaxRows(self._options.max_offsets_per_trigger or 2**62)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix how far this run reads."""
        self._begun().prepare_available_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the queues reach, for progress reports."""
        return None if self._driver is None else self._driver.report_latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """The tasks of a micro-batch."""
        if self._last is None:
            self._last = end  # A restart: the first thing Spark asks is the logged batch.
        if start == end:
            return []
        ranges = ranges_between(SourceOffset.from_json(start), SourceOffset.from_json(end))
        options = self._options
        split = Split(
            options.min_partitions, options.max_partitions, options.max_records_per_partition
        )
        return [RangePartition(task) for task in divide(ranges, split)]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with everything before `end`."""
        if self._options.commit_offsets == "confirmed" and self._driver is not None:
            self._driver.confirm(SourceOffset.from_json(end))

    def stop(self) -> None:
        """The query is over."""
        if self._driver is not None:
            driver, self._driver = self._driver, None
            driver.close()

    def _begun(self) -> StreamDriver:
        if self._driver is None:
            from pyspark_rocketmq.stream_driver import StreamDriver  # No worker needs it.

            _let_sigterm_unwind()
            self._driver = StreamDriver(self._options)
        return self._driver

    # --- the workers ------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's ranges; the same ranges give the same rows whenever they are read."""
        assert isinstance(partition, RangePartition)
        return read_ranges(self._plan, partition.ranges)


def _let_sigterm_unwind() -> None:
    """Make the signal that ends a stream process run `stop()`, which Spark does not promise."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _leave)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
