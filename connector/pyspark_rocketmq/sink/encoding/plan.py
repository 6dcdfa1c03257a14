"""Options and schema of a write -> its plan, or a refusal before any task begins."""

from __future__ import annotations

import logging
import uuid
import zlib

from pyspark.sql.types import StructType

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.errors import UnsupportedError
from pyspark_rocketmq.options.sink_table import WriteName
from pyspark_rocketmq.options.values import WriteOptions
from pyspark_rocketmq.sink.encoding.layout import SinkLayout, SinkPlan, TransactionPlan
from pyspark_rocketmq.sink.encoding.schema import sink_columns
from rocketmq_wire.errors import RocketMQError, TopicNotFoundError

_log = logging.getLogger("pyspark_rocketmq")


def sink_plan(options: WriteOptions, schema: StructType, *, is_batch: bool = False) -> SinkPlan:
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
    from pyspark_rocketmq.sink.encoding.routes import (
        is_without_brokers,  # Keeps planning streams light.
    )
    from rocketmq_client.cluster import open_cluster
    from rocketmq_client.producer.producer import Producer

    topic = plan.layout.topic
    if plan.send_back is not None or topic is None:
        return
    with open_cluster(plan.settings) as cluster:
        try:
            Producer(cluster, plan.group).queues(topic)
        except RocketMQError as error:
            if isinstance(error, TopicNotFoundError) and not is_without_brokers(cluster):
                raise
            _log.warning("cannot tell yet whether the topic %s is there: %s", topic, error)


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
