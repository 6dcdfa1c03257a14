"""Spark's calls to write -> the client: one writer for batches, one for streams.

A task succeeds when every message of it is stored. What a broken connection left unknown is sent
again under the same unique key, and what a failed task sent is sent again by the next attempt.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_rocketmq.errors import NothingWrittenError, OptionError, UnsupportedError
from pyspark_rocketmq.option_sink import WriteName
from pyspark_rocketmq.sink_requests import SinkLayout, SinkRequests
from pyspark_rocketmq.sink_routes import PatientQueues
from pyspark_rocketmq.sink_send_back import SendBackPlan, send_back_rows
from pyspark_rocketmq.sink_stamps import WriteId
from pyspark_rocketmq.sink_transactions import (
    HALVES_IN_FLIGHT,
    Commits,
    TransactionPlan,
    write_halves,
)
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.producer import Producer
from rocketmq_client.send_line import SendRequest
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.counted import counted
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
    send_back: SendBackPlan | None = None
    """Rows are not sent: the messages they were read from are given back."""
    transaction: TransactionPlan | None = None
    """Rows are sent as half messages, which the driver commits."""
    named: WriteName | None = None
    """What the user calls a batch write; None: it cannot be told when it runs again."""


@dataclass
class TaskWritten(WriterCommitMessage):
    """What a task reports: every one of its rows is stored."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send one task's rows and wait for every answer."""
        write_id = batch_write_id(self._plan)
        is_known = self._plan.named is not None
        # The driver has looked the one topic up, when the write was planned.
        had_topic = self._plan.layout.topic is not None
        return write_task(
            self._plan, write_id, iterator, may_be_replayed=is_known, had_topics=had_topic
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what is transactional; all else is visible already."""
        commit_write(self._plan, messages, is_fresh=self._plan.named is None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Roll back what is transactional; of all else say what stays."""
        abort_write(self._plan, messages)


def check_written(messages: list[WriterCommitMessage | None]) -> None:
    """Raise NothingWrittenError when tasks ran and none says what it wrote."""
    if messages and all(message is None for message in messages):
        raise NothingWrittenError


def commit_write(
    plan: SinkPlan, messages: list[WriterCommitMessage | None], *, is_fresh: bool = False
) -> None:
    """Every task has written."""
    check_written(messages)
    if plan.transaction is not None:
        transaction = replace(plan.transaction, is_fresh=is_fresh)
        with open_cluster(plan.settings) as cluster:
            Commits(cluster, plan.group, transaction).commit_written(messages)


def abort_write(plan: SinkPlan, messages: list[WriterCommitMessage | None]) -> None:
    """A task has failed, or the commit."""
    if plan.transaction is None:
        _report_abort(messages)
        return
    with open_cluster(plan.settings) as cluster:
        Commits(cluster, plan.group, plan.transaction).abort_written(messages)


def write_task(
    plan: SinkPlan,
    write_id: WriteId,
    batches: Iterator[pa.RecordBatch],
    *,
    may_be_replayed: bool = False,
    had_topics: bool = False,
) -> WriterCommitMessage:
    """Send rows as they come, many requests under way.

    `had_topics`: a topic without a route is waited for. Raises the first refusal, or what the last
    try met after `retry.outageMs`.
    """
    cluster = open_cluster(plan.settings)
    try:
        if plan.send_back is not None:
            return TaskWritten(send_back_rows(cluster, plan.send_back, write_id.partition, batches))
        if plan.transaction is not None:
            return _write_halves(cluster, plan, write_id, batches, may_be_replayed, had_topics)
        producer = Producer(
            cluster, plan.group, in_flight_max=plan.in_flight_max, repeats_unknown=True
        )
        queues = PatientQueues(producer, cluster, had_topics=had_topics)
        requests = SinkRequests(plan.layout, queues, write_id, random.getrandbits(16))
        for sent in producer.send_many(_requests(requests, batches)):
            if isinstance(sent.result, RocketMQError):
                raise sent.result
        return TaskWritten(requests.row_count)
    finally:
        cluster.close()


def _write_halves(
    cluster: Cluster,
    plan: SinkPlan,
    write_id: WriteId,
    batches: Iterator[pa.RecordBatch],
    may_be_replayed: bool,
    had_topics: bool,
) -> WriterCommitMessage:
    assert plan.transaction is not None
    producer = Producer(
        cluster,
        plan.group,
        in_flight_max=HALVES_IN_FLIGHT,
        in_flight_per_queue_max=HALVES_IN_FLIGHT,
        repeats_unknown=True,
    )
    queues = PatientQueues(producer, cluster, had_topics=had_topics)
    requests = SinkRequests(plan.layout, queues, write_id, random.getrandbits(16))
    written = write_halves(
        producer,
        plan.transaction,
        write_id,
        _requests(requests, batches),
        may_be_replayed=may_be_replayed,
    )
    # Spark wants its rows read, also where the batch is decided and they are not sent again.
    for batch in batches:
        written.rows += batch.num_rows
    return written


def _requests(requests: SinkRequests, batches: Iterator[pa.RecordBatch]) -> Iterator[SendRequest]:
    for batch in batches:
        yield from requests.of_batch(batch)


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _report_abort(messages: list[WriterCommitMessage | None]) -> None:
    rows = sum(message.rows for message in messages if isinstance(message, TaskWritten))
    _log.warning(
        "the write failed; %s of finished tasks left in their topics, and perhaps some of the "
        "failed ones: when it runs again, drop_replays tells which are there twice",
        counted(rows, "row"),
    )


if DataSourceStreamArrowWriter is not None:

    class StreamWriter(DataSourceStreamArrowWriter):
        """Writes the micro-batches of a query."""

        def __init__(self, plan: SinkPlan) -> None:
            self._plan = plan

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            """Send one task's rows and wait for every answer."""
            write_id = _stream_write_id(self._plan)
            # Nobody has looked for it before the first batch; what rows name, nobody ever has.
            had_topics = write_id.batch != "0" and self._plan.layout.topic is not None
            return write_task(
                self._plan, write_id, iterator, may_be_replayed=True, had_topics=had_topics
            )

        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
            """Commit what is transactional; all else is visible already."""
            commit_write(self._plan, messages)

        def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
            """Roll back what is transactional; of all else say what stays."""
            abort_write(self._plan, messages)


def _stream_write_id(plan: SinkPlan) -> WriteId:
    batch = _streams_batch()
    # Continuous mode has no batches; its commit tells, as Spark drops the rows anyway.
    query, number = (plan.write, "0") if batch is None else batch
    return WriteId(query, number, _partition())


def batch_write_id(plan: SinkPlan) -> WriteId:
    """Who writes, in a task of a batch write. Raises OptionError for a name that says too little.

    The writes of one foreachBatch share its query and batch: only their names tell them apart.
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
    """The ids of the query and the batch that this task is of, if it is of any."""
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
