"""Streaming queries for tests: every batch's rows as they came, and runs that end by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from support.loader import Row

_SELECTIONS = ("subscribe", "subscribePattern", "assign", "topic")
# Generous: a machine may be busy with other tests.
_SECONDS_MAX = 120


def rows_of(frame: DataFrame) -> list[Row]:
    """(topic, queue, offset, body) of every row, sorted."""
    table = frame.select("topic", "queueId", "queueOffset", "body").collect()
    return sorted((r[0], r[1], r[2], bytes(r[3])) for r in table)


class Batches:
    """A foreachBatch function that keeps each batch's rows, in the order of the batches."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.seen: list[tuple[int, list[Row]]] = []
        self.fail_at = fail_at

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        if batch_id == self.fail_at:
            raise RuntimeError("the driver dies here")
        self.seen.append((batch_id, rows_of(frame)))

    @property
    def rows(self) -> list[Row]:
        """All rows of all batches, sorted: a row that came twice is there twice."""
        return sorted(row for _, rows in self.seen for row in rows)

    @property
    def sizes(self) -> list[int]:
        """How many rows each batch had that had any."""
        return [len(rows) for _, rows in self.seen if rows]


class Queries:
    """Starts queries over one topic and stops what is left of them."""

    def __init__(self, spark: SparkSession, name_server: str, topic: str, folder: Path) -> None:
        self.spark, self.name_server, self.topic, self.folder = spark, name_server, topic, folder
        self._running: list[StreamingQuery] = []

    @staticmethod
    def complete(name_server: str, topic: str, options: Mapping[str, str]) -> dict[str, str]:
        """The options with the connection and the topic, where they leave them out."""
        full = {name.replace("__", "."): text for name, text in options.items()}
        if "endpoints" not in full:
            full.setdefault("nameServer", name_server)
        if not any(name in full for name in _SELECTIONS):
            full["subscribe"] = topic
        return full

    def load(self, **options: str) -> DataFrame:
        """A streaming DataFrame."""
        full = {"discoveryIntervalMs": "200", **options}
        reader = self.spark.readStream.format("rocketmq")
        return reader.options(**self.complete(self.name_server, self.topic, full)).load()

    def start(
        self,
        frame: DataFrame,
        batches: Callable[[DataFrame, int], None],
        checkpoint: str = "checkpoint",
        **trigger: Any,
    ) -> StreamingQuery:
        """Start a query that hands its batches on."""
        writer = frame.writeStream.foreachBatch(batches)
        writer = writer.option("checkpointLocation", str(self.folder / checkpoint))
        query = (writer.trigger(**trigger) if trigger else writer).start()
        self._running.append(query)
        return query

    def available(self, checkpoint: str = "checkpoint", **options: str) -> Batches:
        """Run until everything that is there is read."""
        batches = Batches()
        self.run(batches, checkpoint, **options)
        return batches

    def run(
        self, batches: Batches, checkpoint: str = "checkpoint", **options: str
    ) -> StreamingQuery:
        """Run `batches` over everything that is there."""
        query = self.start(self.load(**options), batches, checkpoint, availableNow=True)
        assert query.awaitTermination(_SECONDS_MAX), "the query did not end"
        return query

    def until(self, query: StreamingQuery, reached: Callable[[], bool]) -> None:
        """Wait until something holds while the query runs; its failure is raised."""
        deadline = time.monotonic() + _SECONDS_MAX
        while not reached():
            error = query.exception()
            if error is not None:
                raise error
            assert time.monotonic() < deadline, f"not reached: {query.lastProgress}"
            query.awaitTermination(0.05)  # type: ignore[arg-type]  # It takes fractions, too.

    def stop(self) -> None:
        for query in self._running:
            query.stop()
