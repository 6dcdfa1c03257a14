"""Rows that were read from topics -> rows to write as new messages, at a rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from rocketmq_wire.records.properties import LIFECYCLE, MESSAGE_GROUP

# Pieces per second: more are steadier and cost more.
_PIECES_A_SECOND: Final = 10
_LIFE: Final = (*LIFECYCLE, MESSAGE_GROUP)


def as_new_messages(frame: DataFrame, **columns: Column) -> DataFrame:
    """The columns of new messages: body, keys, tags, and the sender's own properties.

    Keeps the message group. `columns` are added by name, such as topic or queueId.

    Args:
        frame: Messages as a read returns them.
        columns: Further columns of the write, by name, such as `topic` or `queueId`.
    """
    kept: dict[str, Column] = {
        name: sf.col(name) for name in ("body", "keys", "tags") if name in frame.columns
    }
    if "properties" in frame.columns:
        properties = sf.col("properties")
        kept["properties"] = sf.map_filter(properties, lambda name, _: ~name.isin(*_LIFE))
        if "queueId" not in columns:
            kept["messageGroup"] = properties[MESSAGE_GROUP]
    return frame.select(*(column.alias(name) for name, column in (kept | columns).items()))


def at_rate(frame: DataFrame, rows_per_second: float, tasks: int = 1) -> DataFrame:
    """The same rows through `tasks` tasks, together at most `rows_per_second`.

    Rows keep their order within a task. Fewer free cores than tasks make it slower, never faster.
    """
    if rows_per_second <= 0 or tasks < 1:
        raise ValueError(f"no rate: {rows_per_second} rows a second in {tasks} tasks")
    paced = partial(pace, rows_per_second / tasks)
    return frame.coalesce(tasks).mapInArrow(paced, frame.schema)


def pace(
    rows_per_second: float,
    batches: Iterable[pa.RecordBatch],
    now_s: Callable[[], float] = time.monotonic,
    sleep_s: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """Yield each row when it is due; a pause of the consumer is not caught up."""
    piece_rows = max(1, int(rows_per_second / _PIECES_A_SECOND))
    due_s = now_s()
    for batch in batches:
        for first in range(0, batch.num_rows, piece_rows):
            piece = batch.slice(first, piece_rows)
            early_s = due_s - now_s()
            if early_s > 0:
                sleep_s(early_s)
            else:
                due_s = now_s()
            due_s += piece.num_rows / rows_per_second
            yield piece
