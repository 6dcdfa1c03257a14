"""What the connector makes of a topic, kept as Arrow files that the ceiling replays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_rocketmq import DefaultSource


@dataclass(frozen=True, slots=True)
class Capture:
    """Files of batches, one for each of the connector's partitions, with their row counts."""

    files: tuple[tuple[str, int], ...]

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.files)

    @property
    def option(self) -> str:
        """As the replaying source reads it."""
        return "|".join(f"{path}:{rows}" for path, rows in self.files)


def capture(options: dict[str, str], schema: StructType, directory: Path) -> Capture:
    """Read a topic through the connector's own batch reader, in this process, into files."""
    directory.mkdir(parents=True, exist_ok=True)
    reader = DefaultSource(options).reader(schema)
    files = []
    for index, partition in enumerate(reader.partitions()):
        path = directory / f"{index:03d}.arrow"
        files.append((str(path), _write(path, iter(reader.read(partition)))))
    return Capture(tuple(files))


def _write(path: Path, batches: Iterator[pa.RecordBatch]) -> int:
    rows = 0
    writer = None
    with pa.OSFile(str(path), "wb") as sink:
        for batch in batches:
            writer = writer or pa.ipc.new_file(sink, batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
        if writer is not None:
            writer.close()
    return rows
