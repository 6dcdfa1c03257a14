"""Collects the rows of a streaming DataFrame in a test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_rocketmq.errors import StreamTimeoutError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

TIMEOUT_S = 120.0


class StreamCollector:
    """`collect_stream(df)` runs a stream over all present messages and returns its rows in order.

    Each call has its own checkpoint. A call that names one resumes where the last call of that
    name ended.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def __call__(
        self, frame: DataFrame, *, checkpoint: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> list[Row]:
        """Raises what the query raises, and StreamTimeoutError."""
        self._count += 1
        directory = self._folder / (checkpoint or f"checkpoint-{self._count}")
        rows: list[Row] = []

        def take(batch: DataFrame, _batch_id: int) -> None:
            rows.extend(batch.collect())

        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(directory))
        query = writer.trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(timeout_s):  # type: ignore[arg-type]
                raise StreamTimeoutError(
                    f"the stream did not end within {timeout_s:g} s; its last progress: "
                    f"{query.lastProgress}"
                )
        finally:
            query.stop()
        return rows
