"""Spark's streaming calls -> the pop driver, and a worker's task -> the records it was given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_rocketmq.options.parse import ReadOptions
from pyspark_rocketmq.options.pop_checks import ROWS_MAX
from pyspark_rocketmq.read.batch_log import log_batch
from pyspark_rocketmq.read.task import ReadPlan
from pyspark_rocketmq.stream.pop.partitions import PopPartition, read_popped
from pyspark_rocketmq.stream.pull.read_limits import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark_rocketmq.stream.reader import let_sigterm_unwind

if TYPE_CHECKING:
    from pyspark_rocketmq.stream.pop.driver import PopDriver


class PopStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The micro-batch reader of consumeMode=pop, for Spark 4.0 to 4.3."""

    def __init__(self, options: ReadOptions, plan: ReadPlan) -> None:
        self._options, self._plan = options, plan
        self._driver: PopDriver | None = None
        self._last: dict[str, Any] | None = None
        self._has_starts = True

    def __getstate__(self) -> dict[str, Any]:
        # Only what a worker needs travels.
        return {**self.__dict__, "_driver": None, "_last": None}

    # --- the stream process -----------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        return self._begun().initial_offset()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The end of the next micro-batch. Spark 4.0 and 4.1 give no start: there `commit` tells
        what is durable."""
        del limit  # What a batch holds is in memory: it always has its limits.
        driver = self._begun()
        if start is None:
            self._has_starts = False
            start = self._last if self._last is not None else driver.initial_offset()
        self._last = driver.latest_offset(start, is_durable=self._has_starts)
        return self._last

    def getDefaultReadLimit(self) -> ReadLimit:
        """A micro-batch is always limited."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or ROWS_MAX)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix how far this run reads."""
        self._begun().prepare_available_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For progress reports."""
        return self._last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[PopPartition]:
        """The tasks of a micro-batch."""
        if self._last is None:
            self._last = end
        tasks = self._begun().partitions(start, end)
        counts = (
            (popped.queue, sum(len(offsets) for _, offsets in popped.loans))
            for task in tasks
            for popped in task.queues
        )
        log_batch("batch", counts, len(tasks), is_shown=self._options.log_batches)
        return tasks

    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with everything before `end`."""
        if not self._has_starts and self._driver is not None:
            self._driver.settle(end)

    def stop(self) -> None:
        """The query is over."""
        if self._driver is not None:
            driver, self._driver = self._driver, None
            driver.close()

    def _begun(self) -> PopDriver:
        if self._driver is None:
            from pyspark_rocketmq.stream.pop.driver import open_pop_driver  # No worker needs it.

            let_sigterm_unwind()
            self._driver = open_pop_driver(self._options)
        return self._driver

    # --- the workers ------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's records: the same whenever it runs."""
        assert isinstance(partition, PopPartition)
        return read_popped(self._plan, partition)
