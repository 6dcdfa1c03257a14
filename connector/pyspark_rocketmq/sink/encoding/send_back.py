"""Rows that could not be processed -> send-backs: retry, and at last dead letters of their group.

RocketMQ takes a message back by its position in the broker's log, and does the rest: the copy in
`%RETRY%<group>`, the delay of its attempt, and after the last one the copy in `%DLQ%<group>`.

A request that a broker certainly did not take, or whose connection broke, is sent again while an
outage may last. So a message may come twice, but is never lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StringType, StructType

from pyspark_rocketmq.errors import SinkRowError, SinkSchemaError
from pyspark_rocketmq.sink.encoding.plan import SendBackPlan
from rocketmq_client.cluster import Cluster
from rocketmq_client.errors import SendBackRefusedError
from rocketmq_client.retry import Retry
from rocketmq_wire.errors import RocketMQError, RowRefusedError
from rocketmq_wire.requests.messages import SendBack

# In flight together. Brokers take thousands of requests at a time from one connection.
AT_ONCE_MAX: Final = 256
_NUMBER: Final = (ByteType, ShortType, IntegerType, LongType)
_NEEDED: Final = {"topic": (StringType,), "brokerName": (StringType,), "physicalOffset": _NUMBER}
_OPTIONAL: Final = {"msgId": (StringType,), "delayLevel": _NUMBER}
_READ_SO: Final = (
    "send back rows as they were read, with .schema('topic STRING, brokerName STRING, "
    "physicalOffset BIGINT, ...')"
)


def send_back_plan(group: str, attempts_max: int | None, schema: StructType) -> SendBackPlan:
    """The plan for rows of a schema; other columns do not matter. Raises SinkSchemaError."""
    column_indices = {}
    by_key = {name.lower(): name for name in (*_NEEDED, *_OPTIONAL)}
    for column_index, field in enumerate(schema.fields):
        name = by_key.get(field.name.lower())
        if name is None:
            continue
        kinds = _NEEDED.get(name) or _OPTIONAL[name]
        if not isinstance(field.dataType, kinds):
            wanted = kinds[-1]().simpleString()
            found = field.dataType.simpleString()
            raise SinkSchemaError(f"column '{name}' must be {wanted}, not {found}: {_READ_SO}")
        column_indices[name] = column_index
    for name in _NEEDED:
        if name not in column_indices:
            raise SinkSchemaError(f"column '{name}' is missing: {_READ_SO}")
    return SendBackPlan(group, attempts_max, column_indices)


def requests_of(plan: SendBackPlan, batch: pa.RecordBatch) -> list[tuple[str, SendBack]]:
    """(broker, request) of each row: the protocol has no batches of send-backs.

    Raises RowRefusedError.
    """
    columns = {
        name: batch.column(column_index).to_pylist()
        for name, column_index in plan.column_indices.items()
    }
    rows = range(batch.num_rows)
    ids = columns.get("msgId", [None] * batch.num_rows)
    levels = columns.get("delayLevel", [None] * batch.num_rows)
    for name in _NEEDED:
        if None in columns[name]:
            raise RowRefusedError(columns[name].index(None), f"has no {name}: {_READ_SO}")
    return [
        (
            columns["brokerName"][row],
            SendBack(
                plan.group,
                columns["physicalOffset"][row],
                levels[row] or 0,
                ids[row] or "",
                columns["topic"][row],
                plan.attempts_max,
            ),
        )
        for row in rows
    ]


def send_back_rows(
    cluster: Cluster, plan: SendBackPlan, partition: int, batches: Iterator[pa.RecordBatch]
) -> int:
    """Send back every row's message. Returns their number.

    Raises SendBackRefusedError, SinkRowError.
    """
    routed: set[str] = set()
    count = 0
    for batch in batches:
        try:
            requests = requests_of(plan, batch)
        except RowRefusedError as error:
            row = f"row {count + error.row} (counted from 0)"
            raise SinkRowError(partition, row, error.reason) from error
        for topic in {request.topic for _, request in requests} - routed:
            # Learn the addresses of its brokers.
            cluster.route(topic)
            routed.add(topic)
        for first in range(0, len(requests), AT_ONCE_MAX):
            _send_back(cluster, requests[first : first + AT_ONCE_MAX])
        count += len(requests)
    return count


def _send_back(cluster: Cluster, requests: Sequence[tuple[str, SendBack]]) -> None:
    retry = Retry(cluster.settings.request_retry, cluster.clock)
    while requests:
        replies = cluster.transport.call_many(
            requests, timeout_ms=cluster.settings.request_timeout_ms
        )
        failed = [
            (request, reply)
            for request, reply in zip(requests, replies, strict=True)
            if isinstance(reply, RocketMQError)
        ]
        for (broker, request), error in failed:
            if not error.retryable or retry.is_over:
                raise SendBackRefusedError(
                    broker, request.physical_offset, request.group, str(error)
                ) from error
        requests = [request for request, _ in failed]
        if requests:
            retry.pause()
