"""The contract between the stream reader and its driver: three drivers answer it.

    pull.driver          reads all selected queues by offset
    group_member.driver  reads the queues that its consumer group assigns to it (joinGroup)
    pop.driver           reads what brokers hand out (consumeMode=pop)

A driver lives in the one process that Spark keeps for a query's source, from the first call of
Spark to `close`. `open_driver` makes the one that the options ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.read.plan import ReadPlan
from rocketmq_wire.model import QueueId

Offset = dict[str, Any]
"""An offset as Spark checkpoints it: plain JSON values."""


class StreamPartition(Protocol):
    """One task of a micro-batch; Spark carries it to a worker pickled."""

    def counts(self) -> Iterator[tuple[QueueId, int]]:
        """Return how many messages of which queues the task reads, for the log."""

    def read(self, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        """Read the task's rows in a worker; a task that runs again reads the same rows."""


class StreamDriver(Protocol):
    """Plans the micro-batches of one query."""

    def initial_offset(self) -> Offset:
        """Return where a new query begins; the same answer however often Spark asks."""

    def prepare_available_now(self) -> None:
        """Freeze how far this run reads: up to what is there now."""

    def latest_offset(
        self, start: Offset, *, is_durable: bool = True, is_unlimited: bool = False
    ) -> Offset:
        """Return the end of the next micro-batch; `start` itself if there is none yet.

        `is_durable`: Spark itself passed `start`, so every batch up to it is done. Spark before 4.2
        passes none. `is_unlimited`: the batch takes all there is.
        """

    def partitions(
        self, start: Offset, end: Offset, *, is_logged: bool = False
    ) -> Sequence[StreamPartition]:
        """Return the tasks of a micro-batch; the same ones however often Spark asks.

        `is_logged`: the batch may have been planned before a restart. Raises DataLossError.
        """

    def report_latest(self) -> Offset | None:
        """Return how far the queues reach, for Spark's progress report; None: not known yet."""

    def confirm(self, end: Offset) -> None:
        """Note that Spark has committed every batch up to `end`."""

    def close(self) -> None:
        """End the query's threads and connections, within seconds."""


def open_driver(options: ReadOptions) -> StreamDriver:
    """Open the driver of a new query. No worker needs one, so each is imported here."""
    if options.consumer.consume_mode == "pop":
        from pyspark_rocketmq.stream.pop.driver import open_pop_driver

        return open_pop_driver(options)
    if options.consumer.join_group:
        from pyspark_rocketmq.stream.group_member.driver import GroupMemberDriver

        return GroupMemberDriver(options)
    from pyspark_rocketmq.stream.pull.driver import PullDriver

    return PullDriver(options)
