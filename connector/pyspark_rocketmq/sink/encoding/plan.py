"""Options and schema of a write -> its plan for the tasks, or a refusal before any task begins.

Apart from the code that writes, because Spark plans every batch in a process that does nothing
else.
"""

from __future__ import annotations

import logging
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import types

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.errors import SinkSchemaError, UnsupportedError
from pyspark_rocketmq.options.tables import WriteName
from pyspark_rocketmq.options.values import WriteOptions
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError, TopicNotFoundError
from rocketmq_wire.suggest import nearest

_log = logging.getLogger("pyspark_rocketmq")

_TEXT: Final = (types.StringType,)
_NUMBER: Final = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
_KINDS: Final[Mapping[str, tuple[tuple[type[types.DataType], ...], str]]] = {
    "topic": (_TEXT, "string"),
    "body": ((types.StringType, types.BinaryType), "string or binary"),
    "keys": (_TEXT, "string"),
    "tags": (_TEXT, "string"),
    "properties": ((types.MapType,), "map<string,string>"),
    "queueId": (_NUMBER, "int"),
    "brokerName": (_TEXT, "string"),
    "messageGroup": (_TEXT, "string"),
    "delayLevel": (_NUMBER, "int"),
    "deliveryTimestamp": ((types.TimestampType,), "timestamp"),
}
_BY_KEY: Final = {name.lower(): name for name in _KINDS}
# Columns of Spark's Kafka sink.
_OF_KAFKA: Final = {"value": "body", "key": "keys", "headers": "properties", "partition": "queueid"}


@dataclass(frozen=True, slots=True)
class WriteId:
    """The identity of a task, the same when it runs again."""

    query: str
    batch: str
    partition: int

    def __str__(self) -> str:
        return f"{self.query}/{self.batch}/{self.partition}"


@dataclass(frozen=True, slots=True)
class SinkLayout:
    """How rows become requests; the same for all tasks of a write."""

    columns: Mapping[str, int]
    """The index of each message part's column."""
    topic: str | None
    """The topic of every row; None: the column `topic` names it."""
    bytes_max: int
    is_grpc: bool
    compression: str | None = None
    compression_threshold: int = 4_096
    """Bodies of at least this size are compressed."""
    immunity_seconds: int | None = None
    """How long brokers check no half message of the write; None: it sends none."""
    decision_topic: str | None = None
    """The topic that no row may go to."""


@dataclass(frozen=True, slots=True)
class SendBackPlan:
    group: str
    attempts_max: int | None
    column_indices: dict[str, int]


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    decision_topic: str
    in_order: bool = False
    """True if rows have message groups: each queue is committed in order, one by one."""
    is_named: bool = False
    """True if the user named the write, and may have reused the name."""
    is_fresh: bool = False
    """True if the id is new: the write is neither a stream's nor named."""
    checked_seconds: float = 120.0
    """How long to wait for brokers' checks of late half messages; brokers check every 30 s."""
    visibility_wait_seconds: float = 3.0
    """How long a broker may still work on a commit whose answer was lost or whose driver died."""


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """The plan of a write, the same for all of its tasks."""

    settings: ConnectionSettings
    layout: SinkLayout
    group: str
    in_flight_max: int
    write: str
    """The name of this write, unless a stream's query and batch name it."""
    send_back: SendBackPlan | None = None
    """Set if rows are not sent, but their messages sent back."""
    transaction: TransactionPlan | None = None
    """Set if rows are sent as half messages, which the driver commits."""
    named: WriteName | None = None
    """The user's name of a batch write; None: a rerun cannot be recognised."""


def sink_plan(
    options: WriteOptions, schema: types.StructType, *, is_batch: bool = False
) -> SinkPlan:
    """The plan of a write. Raises SinkSchemaError."""
    if options.send_back:
        from pyspark_rocketmq.sink.encoding.send_back import send_back_plan  # Keeps planning light.

        assert options.group is not None
        return SinkPlan(
            settings=connection_settings(options.connection),
            layout=SinkLayout({}, None, options.max_batch_bytes, False),
            group=options.producer_group,
            in_flight_max=options.sends_in_flight,
            write="",
            send_back=send_back_plan(options.group, options.max_reconsume_times, schema),
        )
    topic = options.topic
    columns = sink_columns(schema, has_topic_option=topic is not None)
    transaction = None
    if options.delivery == "transactional":
        transaction = TransactionPlan(
            options.decision_topic,
            in_order="messageGroup" in columns,
            is_named=options.write_id is not None,
            is_fresh=is_batch and options.write_id is None,
        )
    return SinkPlan(
        settings=connection_settings(options.connection),
        layout=SinkLayout(
            columns,
            topic,
            options.max_batch_bytes,
            is_grpc=options.connection.endpoints is not None,
            compression=None if options.compression == "none" else options.compression,
            compression_threshold=options.compression_threshold,
            immunity_seconds=-(-options.transaction_timeout_ms // 1_000) if transaction else None,
            decision_topic=options.decision_topic if transaction else None,
        ),
        group=options.producer_group,
        in_flight_max=options.sends_in_flight,
        write=str(uuid.uuid4()),
        transaction=transaction,
        named=_named(options.write_id, topic),
    )


def require_topic(plan: SinkPlan) -> None:
    """Look up the topic before any task begins. Raises TopicNotFoundError.

    Other errors are left to the tasks, which wait for an unavailable cluster: while it is down, no
    topic has a route.
    """
    from pyspark_rocketmq.sink.encoding import routes  # Keeps planning streams light.
    from rocketmq_client.cluster import no_route, open_cluster
    from rocketmq_client.producer.producer import Producer

    topic = plan.layout.topic
    if plan.send_back is not None or topic is None:
        return
    with open_cluster(plan.settings) as cluster:
        try:
            Producer(cluster, plan.group).queues(topic)
        except RocketMQError as error:
            if isinstance(error, TopicNotFoundError) and not routes.is_without_brokers(cluster):
                raise no_route(cluster, [topic]) from None
            _log.warning("cannot tell yet whether the topic %s is there: %s", topic, error)


def has_logged_no_batch(checkpoint: str | None) -> bool:
    """Whether a query has begun its first batch, as far as this machine's files tell.

    A later batch proves that the topic was there: without a route its broker is unavailable, and
    the tasks wait for it.
    """
    path = Path((checkpoint or "").removeprefix("file:"))
    return (
        checkpoint is not None
        and (path / "offsets" / "0").exists()
        and not any((path / "commits").glob("[0-9]*"))
    )


def _named(write_id: WriteName | None, topic: str | None) -> WriteName | None:
    """The name with the topic in it: writes to two topics are two writes."""
    if write_id is None or topic is None:
        return write_id
    return WriteName(f"{write_id.name}-{zlib.crc32(topic.encode()):08x}", write_id.number)


def refuse_overwrite(what: str) -> None:
    """Refuse modes that replace content, and name the mode to use: topics only grow."""
    raise UnsupportedError(
        "SAVE_MODE" if what == "batch" else "OUTPUT_MODE",
        "a topic is only appended to, never overwritten: "
        + (
            "write with .mode('append')"
            if what == "batch"
            else "use outputMode('append'), and for complete results foreachBatch with "
            "frame.write.format('rocketmq').option('writeId', NAME).mode('append')"
        ),
    )


def sink_columns(schema: types.StructType, *, has_topic_option: bool) -> dict[str, int]:
    """The index of each message part's column. Raises SinkSchemaError before anything is sent."""
    column_indices: dict[str, int] = {}
    for column_index, field in enumerate(schema.fields):
        name = _BY_KEY.get(field.name.lower())
        if name is None:
            raise SinkSchemaError(
                f"column '{field.name}' is no part of a message: {_hint(field.name)}"
            )
        if name in column_indices:
            raise SinkSchemaError(f"column '{name}' is there twice")
        kinds, wanted = _KINDS[name]
        if not isinstance(field.dataType, kinds) or not _is_text_map(field.dataType):
            found = field.dataType.simpleString()
            raise SinkSchemaError(f"column '{field.name}' must be {wanted}, not {found}")
        column_indices[name] = column_index
    if "body" not in column_indices:
        raise SinkSchemaError("column 'body' is missing")
    if "topic" not in column_indices and not has_topic_option:
        raise SinkSchemaError("the topic is missing: give the option 'topic' or a column 'topic'")
    if "brokerName" in column_indices and "queueId" not in column_indices:
        raise SinkSchemaError("column 'brokerName' needs a column 'queueId'")
    return column_indices


def _is_text_map(kind: types.DataType) -> bool:
    if not isinstance(kind, types.MapType):
        return True
    return all(isinstance(one, types.StringType) for one in (kind.keyType, kind.valueType))


def _hint(name: str) -> str:
    near = _OF_KAFKA.get(name.lower()) or nearest(name, _BY_KEY)
    return f"did you mean '{_BY_KEY[near]}'?" if near else "messages have " + ", ".join(_KINDS)
