"""A task's rows -> the broker, and the commit or abort of all tasks.

A task succeeds when all of its messages are stored. A send whose answer was lost is repeated with
the same unique key; the next attempt of a failed task sends all of its rows again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_rocketmq.errors import NothingWrittenError
from pyspark_rocketmq.sink.encoding.batches import SinkRequests
from pyspark_rocketmq.sink.encoding.plan import SinkPlan, WriteId
from pyspark_rocketmq.sink.encoding.routes import RetryingQueues
from pyspark_rocketmq.sink.encoding.send_back import send_back_rows
from pyspark_rocketmq.sink.transactional.commit import (
    HALF_MESSAGES_IN_FLIGHT,
    Commits,
    write_half_messages,
)
from rocketmq_client.cluster import open_cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.plural import plural

_log = logging.getLogger("pyspark_rocketmq")


@dataclass
class TaskWritten(WriterCommitMessage):
    rows: int


def check_written(messages: list[WriterCommitMessage | None]) -> None:
    """Raise NothingWrittenError if tasks ran and none reports what it wrote."""
    if messages and all(message is None for message in messages):
        raise NothingWrittenError


def commit_write(plan: SinkPlan, messages: list[WriterCommitMessage | None]) -> None:
    check_written(messages)
    if plan.transaction is not None:
        with open_cluster(plan.settings) as cluster:
            Commits(cluster, plan.group, plan.transaction).commit_written(messages)


def abort_write(
    plan: SinkPlan, messages: list[WriterCommitMessage | None], *, has_fixed_id: bool
) -> None:
    """Roll back, or log what stays; `has_fixed_id`: a rerun has the id of this write."""
    if plan.transaction is not None:
        with open_cluster(plan.settings) as cluster:
            Commits(cluster, plan.group, plan.transaction).abort_written(messages)
        return
    rows = sum(message.rows for message in messages if isinstance(message, TaskWritten))
    advice = (
        "after a rerun drop_replays finds the repeated ones"
        if has_fixed_id
        else "without the option writeId a rerun repeats them, and drop_replays cannot tell"
    )
    _log.warning(
        "the write failed; %s of finished tasks left in their topics, and perhaps some of the "
        "failed ones: %s",
        plural(rows, "row"),
        advice,
    )


def write_task(
    plan: SinkPlan,
    write_id: WriteId,
    batches: Iterator[pa.RecordBatch],
    *,
    had_topics: bool = False,
) -> WriterCommitMessage:
    """Send rows as they come, with many requests in flight.

    `had_topics`: wait for a topic without a route. Raises the first refusal, or the last error
    after `retry.outageMs`.
    """
    transaction = plan.transaction
    with open_cluster(plan.settings) as cluster:
        if plan.send_back is not None:
            return TaskWritten(send_back_rows(cluster, plan.send_back, write_id.partition, batches))
        # The order of half messages does not matter before their commit.
        producer = Producer(
            cluster,
            plan.group,
            in_flight_max=HALF_MESSAGES_IN_FLIGHT if transaction else plan.in_flight_max,
            in_flight_per_queue_max=HALF_MESSAGES_IN_FLIGHT if transaction else 1,
            repeats_unknown=True,
        )
        queues = RetryingQueues(producer, cluster, had_topics=had_topics)
        requests = SinkRequests(plan.layout, queues, write_id, random.getrandbits(16))
        sends = (request for batch in batches for request in requests.of_batch(batch))
        if transaction is not None:
            written = write_half_messages(producer, transaction, write_id, sends)
            # Spark requires that all rows are read, also if the batch is decided and nothing is
            # sent.
            written.rows += sum(batch.num_rows for batch in batches)
            return written
        for sent in producer.send_many(sends):
            if isinstance(sent.result, RocketMQError):
                raise sent.result
        return TaskWritten(requests.row_count)
