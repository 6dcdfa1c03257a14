"""Streams in tests: what a streaming DataFrame gives, as a list."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

TIMEOUT_S = 120.0


class StreamTimeoutError(AssertionError):
    """A stream did not come to its end in time."""


class StreamCollector:
    """`collect_stream(df)` runs a stream over all there is and returns its rows, batch by batch.

    Each call has a checkpoint of its own, unless it names one: then it goes on where the last one
    of that name ended.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def __call__(
        self, frame: DataFrame, *, checkpoint: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> list[Row]:
        """Raises what the query raises, and StreamTimeoutError."""
        self._count += 1
        place = self._folder / (checkpoint or f"checkpoint-{self._count}")
        rows: list[Row] = []

        def take(batch: DataFrame, _batch_id: int) -> None:
            rows.extend(batch.collect())

        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(place))
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
