"""Spark's ceiling: a Python source that replays record batches that were made before.

The batches lie in Arrow files, one for each queue, and are mapped, not read: what a run of this
source costs is what Spark itself takes for these very rows in this very partitioning. Workers
import this module, so it stands alone.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

FORMAT = "replay"


@dataclass(frozen=True)
class Piece:
    """Rows `[start, end)` of one file."""

    path: str
    start: int
    end: int


class Pieces(InputPartition):
    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(pieces)
        self.pieces = pieces


class _File:
    """A mapped file of batches, and the row at which each of them begins."""

    def __init__(self, path: str) -> None:
        reader = pa.ipc.open_file(pa.memory_map(path))
        self.batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        self.starts = [0]
        for batch in self.batches:
            self.starts.append(self.starts[-1] + batch.num_rows)

    def rows(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for batch, first in zip(self.batches, self.starts, strict=False):
            low, high = max(start - first, 0), min(end - first, batch.num_rows)
            if low < high:
                yield batch if high - low == batch.num_rows else batch.slice(low, high - low)


# Workers live on between tasks, as the connector's connections do.
_files: dict[str, _File] = {}
_is_frozen = False


def _read(pieces: tuple[Piece, ...]) -> Iterator[pa.RecordBatch]:
    global _is_frozen
    if not _is_frozen:
        # As the connector does: Spark collects everything imported after every task otherwise.
        _is_frozen = True
        gc.collect()
        gc.freeze()
    for piece in pieces:
        if piece.path not in _files:
            _files[piece.path] = _File(piece.path)
        yield from _files[piece.path].rows(piece.start, piece.end)


@dataclass(frozen=True)
class _Options:
    """Files and their row counts, in one text: `path:rows|path:rows`."""

    files: tuple[tuple[str, int], ...]
    partitions: int
    limit: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> _Options:
        parts = [part.rpartition(":") for part in options["files"].split("|")]
        files = tuple((path, int(rows)) for path, _, rows in parts)
        return cls(
            files, int(options.get("partitions", len(files))), int(options.get("limit", 1 << 60))
        )

    def pack(self, starts: list[int], ends: list[int]) -> list[Pieces]:
        """One range a file, packed into the wanted number of partitions."""
        pieces = [
            Piece(path, start, end)
            for (path, _), start, end in zip(self.files, starts, ends, strict=True)
            if end > start
        ]
        count = min(self.partitions, len(pieces))
        return [Pieces(tuple(pieces[index::count])) for index in range(count)]


class _BatchReader(DataSourceReader):
    def __init__(self, options: _Options) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        files = self.options.files
        return list(self.options.pack([0] * len(files), [rows for _, rows in files]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Pieces)
        return _read(partition.pieces)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: _Options) -> None:
        self.options = options

    def initialOffset(self) -> dict[str, Any]:
        return {"at": [0] * len(self.options.files)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.limit)

    def prepareForTriggerAvailableNow(self) -> None: ...

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        rows = [count for _, count in self.options.files]
        if isinstance(limit, ReadAllAvailable):
            return {"at": rows}
        share = max(self.options.limit // len(rows), 1)
        return {"at": [min(count, at + share) for count, at in zip(rows, start["at"], strict=True)]}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Pieces]:
        return self.options.pack(start["at"], end["at"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Pieces)
        return _read(partition.pieces)


class ReplaySource(DataSource):
    """Format `replay`; the schema must be given."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(_Options.parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(_Options.parse(self.options))


class _EmptyStreamReader(DataSourceStreamReader):
    """Always has something new, and it is always nothing."""

    def __init__(self, partitions: int) -> None:
        self.partition_count = partitions

    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"at": start["at"] + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Pieces]:
        return [Pieces(()) for _ in range(self.partition_count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(())


class EmptySource(DataSource):
    """Format `empty`: what a micro-batch costs before there is any row."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _EmptyStreamReader(int(self.options.get("partitions", "8")))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _EmptyReader(int(self.options.get("partitions", "8")))


class _EmptyReader(DataSourceReader):
    def __init__(self, partitions: int) -> None:
        self.partition_count = partitions

    def partitions(self) -> list[InputPartition]:
        return [Pieces(()) for _ in range(self.partition_count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(())
