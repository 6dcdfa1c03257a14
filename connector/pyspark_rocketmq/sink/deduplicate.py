"""drop_replays: rows read from topics -> the same rows without what a write sent again."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from pyspark_rocketmq.errors import SchemaError
from pyspark_rocketmq.sink.encoding.row_ids import ROW_PROPERTY, WRITE_PROPERTY
from rocketmq_wire.model import DEAD_LETTER_PREFIX, RETRY_PREFIX

# RocketMQ copies a message's properties when it delivers it again, and adds some of these.
_COPIED: Final = (
    *("RECONSUME_TIME", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "1ST_POP_TIME"),
    *("DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"),
)
_COPIES: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
_PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")
_KEY: Final = "__pyspark_rocketmq_row"


def drop_replays(frame: DataFrame) -> DataFrame:
    """One row of each that this connector's sink sent; of a repeated one, any of its copies.

    A row goes only when query, batch, partition, row and the digest of its content all repeat;
    messages of other producers all stay, and so do copies of RocketMQ's, for another attempt or as
    dead letters. A stream keeps the key of every row it has seen as state.

    Raises SchemaError when `frame` lacks the columns that tell (read with includeProperties=true).
    """
    missing = [name for name in ("properties", *_PLACE) if name not in frame.columns]
    if missing:
        raise SchemaError(
            f"drop_replays needs the columns {', '.join(missing)} (includeProperties=true)"
        )
    stamp = [sf.col("properties")[name] for name in (WRITE_PROPERTY, ROW_PROPERTY)]
    is_ours = stamp[0].isNotNull() & stamp[1].isNotNull()
    for name in _COPIED:
        is_ours &= sf.col("properties")[name].isNull()
    for prefix in _COPIES:
        is_ours &= ~sf.col("topic").startswith(prefix)
    # A stamp has no offset in it and a place no topic alone: the two cannot be equal.
    ours = sf.array(sf.lit("row"), sf.col("topic"), *stamp)
    others = sf.array(sf.lit("place"), *(sf.col(name).cast("string") for name in _PLACE))
    keyed = frame.withColumn(_KEY, sf.when(is_ours, ours).otherwise(others))
    return keyed.dropDuplicates([_KEY]).drop(_KEY)
