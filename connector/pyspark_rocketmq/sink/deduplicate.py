"""drop_replays: removes the rows that a write sent twice from rows that were read from topics."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from pyspark_rocketmq.errors import SchemaError
from rocketmq_wire.model import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketmq_wire.records.properties import ROW_PROPERTY, WRITE_PROPERTY

# RocketMQ copies a message's properties when it delivers it again, and adds some of these.
_COPIED: Final = (
    *("RECONSUME_TIME", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "1ST_POP_TIME"),
    *("DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"),
)
_COPIES: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
_OFFSET_COLUMNS: Final = ("topic", "brokerName", "queueId", "queueOffset")
_KEY: Final = "__pyspark_rocketmq_row"


def drop_replays(frame: DataFrame) -> DataFrame:
    """Keep one copy of each row that this connector's sink sent.

    `drop_replays` may keep a duplicate but never drops a distinct row: query, batch, partition, row
    number and the digest of the content must all repeat. It keeps all messages of other producers,
    and RocketMQ's own copies for a retry or as dead letters. A stream keeps the key of every row it
    has seen as state.

    Raises SchemaError if `frame` lacks a column that is needed (read with includeProperties=true).

    Args:
        frame: Messages as a read returns them, with `properties`.
    """
    missing = [name for name in ("properties", *_OFFSET_COLUMNS) if name not in frame.columns]
    if missing:
        raise SchemaError(
            f"drop_replays needs the columns {', '.join(missing)} (includeProperties=true)"
        )
    row_id = [sf.col("properties")[name] for name in (WRITE_PROPERTY, ROW_PROPERTY)]
    is_ours = row_id[0].isNotNull() & row_id[1].isNotNull()
    for name in _COPIED:
        is_ours &= sf.col("properties")[name].isNull()
    for prefix in _COPIES:
        is_ours &= ~sf.col("topic").startswith(prefix)
    # The first item tells the two kinds of keys apart.
    ours = sf.array(sf.lit("row"), sf.col("topic"), *row_id)
    # "place" is kept: streams store these keys in their checkpoints.
    others = sf.array(sf.lit("place"), *(sf.col(name).cast("string") for name in _OFFSET_COLUMNS))
    keyed = frame.withColumn(_KEY, sf.when(is_ours, ours).otherwise(others))
    return keyed.dropDuplicates([_KEY]).drop(_KEY)
