"""drop_replays: rows read from topics -> the same rows without what a write sent again."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from pyspark_rocketmq.errors import SchemaError
from pyspark_rocketmq.sink_stamps import ROW_PROPERTY, WRITE_PROPERTY

_PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")
_KEY: Final = "__pyspark_rocketmq_row"


def drop_replays(frame: DataFrame) -> DataFrame:
    """One row of each that this connector's sink sent; of a repeated one, any of its copies.

    A row goes only when query, batch, partition, row and the digest of its content all repeat;
    messages of other producers all stay. A stream keeps the key of every row it has seen as state.

    Raises SchemaError when `frame` lacks the columns that tell (read with includeProperties=true).
    """
    missing = [name for name in ("properties", *_PLACE) if name not in frame.columns]
    if missing:
        raise SchemaError(
            f"drop_replays needs the columns {', '.join(missing)} (includeProperties=true)"
        )
    stamp = [sf.col("properties")[name] for name in (WRITE_PROPERTY, ROW_PROPERTY)]
    is_ours = stamp[0].isNotNull() & stamp[1].isNotNull()
    # A stamp has no offset in it and a place no topic alone: the two cannot be equal.
    ours = sf.array(sf.lit("row"), sf.col("topic"), *stamp)
    others = sf.array(sf.lit("place"), *(sf.col(name).cast("string") for name in _PLACE))
    keyed = frame.withColumn(_KEY, sf.when(is_ours, ours).otherwise(others))
    return keyed.dropDuplicates([_KEY]).drop(_KEY)
