"""as_new_messages: rows that were read from topics -> rows to write as new messages."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from rocketmq_wire.records.properties import LIFECYCLE

_GROUP: Final = "__SHARDINGKEY"
_LIFE: Final = (*LIFECYCLE, _GROUP)


def as_new_messages(frame: DataFrame, **columns: Column) -> DataFrame:
    """The columns of new messages: body, keys, tags, and the sender's own properties.

    Keeps the message group. `columns` are added by name, such as topic or queueId.
    """
    kept: dict[str, Column] = {
        name: sf.col(name) for name in ("body", "keys", "tags") if name in frame.columns
    }
    if "properties" in frame.columns:
        properties = sf.col("properties")
        kept["properties"] = sf.map_filter(properties, lambda name, _: ~name.isin(*_LIFE))
        if "queueId" not in columns:
            kept["messageGroup"] = properties[_GROUP]
    return frame.select(*(column.alias(name) for name, column in (kept | columns).items()))
