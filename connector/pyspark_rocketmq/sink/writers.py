"""Spark's calls to write -> the tasks and their commit: one writer for batches, one for streams.

`task` is imported when a task runs: Spark makes a writer for every write and every query in a
process that only plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_rocketmq.boundary import bares_errors
from pyspark_rocketmq.errors import OptionError, UnsupportedError
from pyspark_rocketmq.sink.encoding.plan import SinkPlan, WriteId

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:
        # Spark 4.0 would hand over rows one by one: see `stream_writer`.
        DataSourceStreamArrowWriter = None

_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_BATCH_PROPERTY: Final = "streaming.sql.batchId"


@bares_errors("write", "commit", "abort")
class BatchWriter(DataSourceArrowWriter):
    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        # The driver looked up the topic when it planned the write.
        had_topic = self._plan.layout.topic is not None
        return _write(self._plan, batch_write_id(self._plan), iterator, had_topic)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self._plan, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self._plan, messages, has_fixed_id=self._plan.named is not None)


def _write(
    plan: SinkPlan, write_id: WriteId, batches: Iterator[pa.RecordBatch], had_topics: bool
) -> WriterCommitMessage:
    from pyspark_rocketmq.sink.task import write_task  # Keeps planning light.

    return write_task(plan, write_id, batches, had_topics=had_topics)


def _commit(plan: SinkPlan, messages: list[WriterCommitMessage | None]) -> None:
    from pyspark_rocketmq.sink.task import commit_write  # Keeps planning light.

    commit_write(plan, messages)


def _abort(
    plan: SinkPlan, messages: list[WriterCommitMessage | None], *, has_fixed_id: bool
) -> None:
    from pyspark_rocketmq.sink.task import abort_write  # Keeps planning light.

    abort_write(plan, messages, has_fixed_id=has_fixed_id)


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


if DataSourceStreamArrowWriter is not None:

    @bares_errors("write", "commit", "abort")
    class StreamWriter(DataSourceStreamArrowWriter):
        def __init__(self, plan: SinkPlan) -> None:
            self._plan = plan

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            write_id = _stream_write_id(self._plan)
            # The topic was looked up by the first batch, unless the rows name it.
            had_topics = write_id.batch != "0" and self._plan.layout.topic is not None
            return _write(self._plan, write_id, iterator, had_topics)

        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
            _commit(self._plan, messages)

        def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
            _abort(self._plan, messages, has_fixed_id=True)


def _stream_write_id(plan: SinkPlan) -> WriteId:
    batch = _streams_batch()
    # Continuous mode has no batches; its commit reports it, as Spark drops the rows anyway.
    query, number = (plan.write, "0") if batch is None else batch
    return WriteId(query, number, _partition())


def batch_write_id(plan: SinkPlan) -> WriteId:
    """The id of a task of a batch write. Raises OptionError for an ambiguous name.

    The writes of one foreachBatch share its query and batch: only their names differ.
    """
    named = plan.named
    if named is None:
        return WriteId(plan.write, "0", _partition())
    if named.number is not None:
        return WriteId(named.name, str(named.number), _partition())
    batch = _streams_batch()
    if batch is None:
        raise OptionError(
            "writeId",
            "names by NAME alone a write of foreachBatch, and this is none, or is in a thread of "
            "its own: give NAME/NUMBER with a number that grows, such as the batch's id",
        )
    query, number = batch
    return WriteId(f"{query}-{named.name}", number, _partition())


def _streams_batch() -> tuple[str, str] | None:
    """The ids of the task's query and batch; None in a batch job."""
    context = TaskContext.get()
    if context is None:
        return None
    query = context.getLocalProperty(_QUERY_PROPERTY)
    batch = context.getLocalProperty(_BATCH_PROPERTY)
    return None if query is None or batch is None else (query, batch)


def stream_writer(plan: SinkPlan) -> StreamWriter:
    """The writer of a stream. Raises UnsupportedError on Spark 4.0."""
    if plan.named is not None:
        raise OptionError(
            "writeId", "is for batch writes: a stream's are known by query and batch", "NOT_HERE"
        )
    if DataSourceStreamArrowWriter is None:
        raise UnsupportedError(
            "SPARK_VERSION",
            "Spark 4.0 has no Arrow writers for streams: use foreachBatch with "
            "frame.write.format('rocketmq').option('writeId', NAME), or Spark 4.1 and later",
        )
    return StreamWriter(plan)
