"""Spark's calls to write -> the client: one writer for batches, one for streams.

A task succeeds when every message of it is stored. What a broken connection left unknown is sent
again under the same unique key, and what a failed task sent is sent again by the next attempt.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_rocketmq.errors import NothingWrittenError, UnsupportedError
from pyspark_rocketmq.sink_requests import SinkLayout, SinkRequests
from pyspark_rocketmq.sink_stamps import WriteId
from rocketmq_client.cluster import open_cluster
from rocketmq_client.producer import Producer
from rocketmq_client.send_line import SendRequest
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:
        # Spark 4.0 would hand over rows one by one: see `stream_writer`.
        DataSourceStreamArrowWriter = None

_log = logging.getLogger("pyspark_rocketmq")

_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_BATCH_PROPERTY: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What a task needs to write; the same for all tasks of a write."""

    settings: ConnectionSettings
    layout: SinkLayout
    group: str
    in_flight_max: int
    write: str
    """Names this write, unless a stream's query and batch do."""


@dataclass
class TaskWritten(WriterCommitMessage):
    """What a task reports: every one of its rows is stored."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Send one task's rows and wait for every answer."""
        return write_task(self._plan, WriteId(self._plan.write, "0", _partition()), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All is stored already."""
        check_written(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what stays: messages cannot be taken back."""
        _report_abort(messages)


def check_written(messages: list[WriterCommitMessage | None]) -> None:
    """Raise NothingWrittenError when tasks ran and none says what it wrote."""
    if messages and all(message is None for message in messages):
        raise NothingWrittenError


def write_task(plan: SinkPlan, write_id: WriteId, batches: Iterator[pa.RecordBatch]) -> TaskWritten:
    """Send rows as they come, many requests under way.

    Raises the first refusal, or SendOutcomeUnknownError after `retry.outageMs`.
    """
    cluster = open_cluster(plan.settings)
    try:
        producer = Producer(
            cluster, plan.group, in_flight_max=plan.in_flight_max, repeats_unknown=True
        )
        requests = SinkRequests(plan.layout, producer, write_id, random.getrandbits(16))
        for sent in producer.send_many(_requests(requests, batches)):
            if isinstance(sent.result, RocketMQError):
                raise sent.result
        return TaskWritten(requests.row_count)
    finally:
        cluster.close()


def _requests(requests: SinkRequests, batches: Iterator[pa.RecordBatch]) -> Iterator[SendRequest]:
    for batch in batches:
        yield from requests.of_batch(batch)


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _report_abort(messages: list[WriterCommitMessage | None]) -> None:
    rows = sum(message.rows for message in messages if isinstance(message, TaskWritten))
    _log.warning(
        "the write failed; %d rows of finished tasks stay in their topics, and so may some of the "
        "failed ones: when it runs again, drop_replays tells which are there twice",
        rows,
    )


if DataSourceStreamArrowWriter is not None:

    class StreamWriter(DataSourceStreamArrowWriter):
        """Writes the micro-batches of a query."""

        def __init__(self, plan: SinkPlan) -> None:
            self._plan = plan

        def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
            """Send one task's rows and wait for every answer."""
            return write_task(self._plan, _stream_write_id(self._plan), iterator)

        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
            """All is stored already."""
            check_written(messages)

        def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
            """Say what stays: messages cannot be taken back."""
            _report_abort(messages)


def _stream_write_id(plan: SinkPlan) -> WriteId:
    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty(_QUERY_PROPERTY)
    batch = context.getLocalProperty(_BATCH_PROPERTY)
    if query is None or batch is None:
        # Continuous mode has no batches; its commit tells, as Spark drops the rows anyway.
        return WriteId(plan.write, "0", context.partitionId())
    return WriteId(query, batch, context.partitionId())


def stream_writer(plan: SinkPlan) -> StreamWriter:
    """The writer of a stream. Raises UnsupportedError on Spark 4.0."""
    if DataSourceStreamArrowWriter is None:
        raise UnsupportedError(
            "SPARK_VERSION",
            "Spark 4.0 has no Arrow writers for streams: use foreachBatch with "
            "frame.write.format('rocketmq'), or Spark 4.1 and later",
        )
    return StreamWriter(plan)
