"""The rows that Spark's parquet sink has made final, in the order in which it wrote them.

The sink names every finished batch's files in `_spark_metadata`; files of a killed attempt are in
the folder too, but in no list, and must not be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq


def final_files(output: Path) -> list[Path]:
    """The files of all finished batches, batch after batch. Raises ValueError for a torn list."""
    entries: dict[str, None] = {}
    for path in _lists(output / "_spark_metadata"):
        version, *lines = path.read_text().splitlines()
        if version != "v1":
            raise ValueError(f"{path} begins with {version!r}")
        for line in lines:
            entry = json.loads(line)
            if entry.get("action", "add") == "add":
                entries[entry["path"]] = None
            else:
                entries.pop(entry["path"], None)
    return [Path(unquote(urlparse(path).path)) for path in entries]


def read_rows(output: Path, columns: list[str]) -> pa.Table:
    """All final rows, in the order of batches, files and rows."""
    return _read(final_files(output), output, columns)


def read_unlisted_rows(output: Path, columns: list[str]) -> pa.Table:
    """The rows of all files, those of killed attempts too, which readers must not see."""
    return _read(sorted(output.glob("*.parquet")), output, columns)


def _read(paths: Iterable[Path], output: Path, columns: list[str]) -> pa.Table:
    tables = [pq.read_table(path, columns=columns, partitioning=None) for path in paths]
    if not tables:
        raise ValueError(f"no batch was finished in {output}")
    return pa.concat_tables(tables)


def _lists(folder: Path) -> list[Path]:
    """The newest compacted list, which holds all before it, and those after it."""
    numbered = {
        int(path.name.partition(".")[0]): path
        for path in folder.iterdir()
        if path.name.partition(".")[0].isdigit()
    }
    compacted = [number for number, path in numbered.items() if path.suffix == ".compact"]
    first = max(compacted, default=0)
    return [numbered[number] for number in sorted(numbered) if number >= first]
