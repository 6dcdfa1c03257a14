"""Spark's streaming calls -> the stream driver, and a worker's task -> its ranges.

Two objects of this class live for a query: one in the stream process, asked for offsets and
partitions, and one pickled to the workers for `read`. Neither does anything when it is made: it is
also made in Spark's planner, which outlives queries.
"""

from __future__ import annotations

import logging
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_rocketmq.options.parse import ReadOptions
from pyspark_rocketmq.planning.checkpoint import ParsedOffsets
from pyspark_rocketmq.planning.micro_batch import Split, divide, ranges_between
from pyspark_rocketmq.read.batch_log import log_batch
from pyspark_rocketmq.read.partitions import RangePartition, range_partitions, uncollected
from pyspark_rocketmq.read.task import ReadPlan, read_ranges
from pyspark_rocketmq.stream.pull.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    from pyspark_rocketmq.stream.group_member.driver import JoinedDriver
    from pyspark_rocketmq.stream.pull.driver import StreamDriver


_log = logging.getLogger("pyspark_rocketmq")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The micro-batch reader of Spark 4.0 to 4.3."""

    def __init__(self, options: ReadOptions, plan: ReadPlan) -> None:
        self._options, self._plan = options, plan
        self._driver: StreamDriver | JoinedDriver | None = None
        self._last: dict[str, Any] | None = None
        self._has_planned = False
        self._is_fresh = True
        """Until the end of a batch was asked for, or one was planned: it may be a logged one."""
        self._parsed = ParsedOffsets()

    def __reduce__(self) -> tuple[Callable[[bytes], StreamReader], tuple[bytes]]:
        # Only what a worker needs travels, and each task unpickles it: a fifth of the processor
        # time of one that reads a few messages, unless what came before is taken again.
        return _reader_of, (pickle.dumps((self._options, self._plan)),)

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
        self._is_fresh = False
        if start is None:
            # There the last end is ours to remember, and the limits ours to keep.
            start = self._last if self._last is not None else self.initialOffset()
            self._begin_without_limits(driver)
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
        is_logged, self._is_fresh = self._is_fresh, False
        if start == end:
            return []
        with uncollected():
            return self._planned(start, end, is_logged=is_logged)

    def _planned(
        self, start: dict[str, Any], end: dict[str, Any], *, is_logged: bool
    ) -> list[RangePartition]:
        ranges = ranges_between(self._parsed.parse(start), self._parsed.parse(end))
        if is_logged:
            ranges = self._begun().drop_recreated_queues(ranges, self._parsed.parse(end))
        options = self._options
        split = Split(
            options.min_partitions, options.max_partitions, options.max_records_per_partition
        )
        tasks = divide(ranges, split)
        counts = ((piece.queue, len(piece)) for piece in ranges)
        log_batch("batch", counts, len(tasks), is_shown=options.log_batches)
        places = {} if self._driver is None else self._driver.places()
        return range_partitions(tasks, places)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with everything before `end`."""
        if self._options.commit_offsets == "confirmed" and self._driver is not None:
            self._driver.confirm(self._parsed.parse(end))

    def stop(self) -> None:
        """The query is over."""
        if self._driver is not None:
            driver, self._driver = self._driver, None
            driver.close()

    def _begin_without_limits(self, driver: StreamDriver | JoinedDriver) -> None:
        """Spark 4.0 and 4.1 do not say whether this is the only batch that they will ask for."""
        if self._has_planned:
            return
        self._has_planned = True
        driver.skip_minimum_wait()
        most = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")
        if limits := [name for name in most if name in self._options.given]:
            _log.warning(
                "this Spark tells a Python source neither trigger nor limits: a run with "
                "AvailableNow or Once ends after one batch, of what %s allows. Leave it out to "
                "read all there is, run again, or use Spark 4.2",
                " and ".join(limits),
            )

    def _begun(self) -> StreamDriver | JoinedDriver:
        if self._driver is None:
            let_sigterm_unwind()
            self._driver = self._new_driver()
        return self._driver

    def _new_driver(self) -> StreamDriver | JoinedDriver:
        if self._options.join_group:
            from pyspark_rocketmq.stream.group_member.driver import (
                JoinedDriver,  # No worker needs it.
            )

            return JoinedDriver(self._options)
        from pyspark_rocketmq.stream.pull.driver import StreamDriver  # No worker needs it.

        return StreamDriver(self._options, parsed=self._parsed)

    # --- the workers ------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's ranges; the same ranges give the same rows whenever they are read."""
        assert isinstance(partition, RangePartition)
        return read_ranges(self._plan, partition.ranges, partition.places)


@lru_cache(maxsize=8)
def _unpickled(packed: bytes) -> tuple[ReadOptions, ReadPlan]:
    unpacked: tuple[ReadOptions, ReadPlan] = pickle.loads(packed)
    return unpacked


def _reader_of(packed: bytes) -> StreamReader:
    return StreamReader(*_unpickled(packed))


def let_sigterm_unwind() -> None:
    """Make the signal that ends a stream process run `stop()`, which Spark does not promise."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _leave)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
