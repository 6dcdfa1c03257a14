"""The commit log's files as they are on the disk: whole, short or missing. Only read, never opened
for good: what a repair looks at before it changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rocketmq_broker.storage.disk.files import Files
from rocketmq_broker.storage.log.scan import Bytes
from rocketmq_broker.storage.log.segment import LOG_DIRECTORY, segment_name
from rocketmq_broker.storage.repair.repair_plan import DamagedRange


class LogFiles:
    """The log by positions; its files are mapped one at a time."""

    def __init__(self, files: Files, segment_size: int) -> None:
        self._files, self.segment_size = files, segment_size
        self.found = _bases(files)
        self._mapped: tuple[int, Bytes] | None = None

    @staticmethod
    def size_of(files: Files) -> int:
        """The size that the log's files have, where no mark says it."""
        found = _bases(files)
        steps = [found[index + 1] - base for index, base in enumerate(found[:-1])]
        longest = max((_size_of(files, base) for base in found), default=0)
        return min([*steps, longest or 1])

    @property
    def end(self) -> int:
        """Behind the last file."""
        return self.found[-1] + self.segment_size if self.found else 0

    def bases(self, start: int, end: int) -> range:
        """Where the files of `[start, end)` begin, whether they are there or not."""
        return range(start - start % self.segment_size, end, self.segment_size)

    def data(self, base: int) -> Bytes | None:
        """One file's bytes, as long as its file is meant to be; None where there is none."""
        if base not in self.found:
            return None
        if self._mapped is None or self._mapped[0] != base:
            file = self._files.open(segment_name(base))
            try:
                size = min(file.size(), self.segment_size)
                data = np.frombuffer(file.map(size) if size else b"", np.uint8)
            finally:
                file.close()
            if size < self.segment_size:
                data = np.concatenate((data, np.zeros(self.segment_size - size, np.uint8)))
            self._mapped = base, data
        return self._mapped[1]

    def pieces(self, start: int, end: int) -> Iterator[Bytes | None]:
        """`[start, end)`, file by file."""
        while start < end:
            base = start - start % self.segment_size
            stop = min(end, base + self.segment_size)
            data = self.data(base)
            yield None if data is None else data[start - base : stop - base]
            start = stop

    def repaired(self, start: int, end: int, damaged_ranges: Sequence[DamagedRange]) -> bytearray:
        """The bytes that `[start, end)` has once the stretches are written over."""
        result = bytearray(end - start)
        position = start
        for piece in self.pieces(start, end):
            stop = min(end, position - position % self.segment_size + self.segment_size)
            if piece is not None:
                result[position - start : stop - start] = piece.tobytes()
            position = stop
        for stretch in damaged_ranges:
            first, last = max(stretch.position, start), min(stretch.end, end)
            if first < last:
                data = memoryview(stretch.blank(self.segment_size))
                result[first - start : last - start] = data[
                    first - stretch.position : last - stretch.position
                ]
        return result


def _bases(files: Files) -> list[int]:
    return sorted(int(name) for name in files.names(LOG_DIRECTORY) if name.isdecimal())


def _size_of(files: Files, base: int) -> int:
    file = files.open(segment_name(base))
    try:
        return file.size()
    finally:
        file.close()
