"""The commit log's files as they are on the disk: whole, short or missing. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from rocketmq_arrow.kernels.gather import Bytes
from rocketmq_broker.storage.disk.files import Files, crc32, file_size
from rocketmq_broker.storage.log.commit_log import segment_name, segment_starts, tail_of
from rocketmq_broker.storage.repair.repair_plan import DamagedRange

Say = Callable[[str], None]
"""Shows the step that a long check or repair is at."""


def silent(_: str) -> None:
    """Shows nothing."""


class LogRange(NamedTuple):
    """Bytes `[start, end)` of the log."""

    start: int
    end: int


class LogFiles:
    """The log by positions; its files are mapped when they are read."""

    def __init__(self, files: Files, segment_size: int) -> None:
        self._files = files
        self.segment_size = segment_size
        self.found = segment_starts(files)
        self._mapped: dict[int, Bytes] = {}

    @staticmethod
    def size_of(files: Files) -> int:
        """The size of the log's files, if no mark has it."""
        found = segment_starts(files)
        steps = [found[index + 1] - base for index, base in enumerate(found[:-1])]
        longest = max((file_size(files, segment_name(base)) for base in found), default=0)
        return min([*steps, longest or 1])

    @property
    def end(self) -> int:
        return self.found[-1] + self.segment_size if self.found else 0

    def bases(self, start: int, end: int) -> range:
        """The starts of the files of `[start, end)`, also of missing ones."""
        return range(start - start % self.segment_size, end, self.segment_size)

    def data(self, base: int) -> Bytes | None:
        """The bytes of one file, with zeros up to its full size; None if it is missing."""
        if base not in self.found:
            return None
        data = self._mapped.get(base)
        if data is None:
            with closing(self._files.open(segment_name(base))) as file:
                size = min(file.size(), self.segment_size)
                data = np.frombuffer(file.map(size) if size else b"", np.uint8)
            if size < self.segment_size:
                data = np.concatenate((data, np.zeros(self.segment_size - size, np.uint8)))
            self._mapped[base] = data
        return data

    def tail(self, position: int) -> Bytes | None:
        """A copy of the bytes from a position to the end of its file; None if it is missing."""
        base = position - position % self.segment_size
        if base not in self.found:
            return None
        with closing(self._files.open(segment_name(base))) as file:
            return tail_of(file, position - base, self.segment_size)

    def size(self, base: int) -> int:
        """The number of bytes of one file that are on the disk; 0 if it is missing."""
        if base not in self.found:
            return 0
        return min(file_size(self._files, segment_name(base)), self.segment_size)

    def crc(self, start: int, end: int) -> int | None:
        """CRC-32 of `[start, end)`; None if a file is missing."""
        found = 0
        for base in self.bases(start, end):
            data = self.data(base)
            if data is None:
                return None
            found = crc32(data[max(start - base, 0) : end - base].data, found)
        return found

    def missing_from(self, start: int, end: int) -> int | None:
        """The first position of `[start, end)` that is not on the disk; None if all are."""
        for base in self.bases(start, end):
            size = self.size(base)
            if base + size < min(end, base + self.segment_size):
                return max(start, base + size)
        return None

    def repaired(self, start: int, end: int, damage: Sequence[DamagedRange]) -> bytearray:
        """The bytes that `[start, end)` has after blank records replaced the damage."""
        result = bytearray()
        for base in self.bases(start, end):
            data, begin = self.data(base), max(start - base, 0)
            size = min(end - base, self.segment_size) - begin
            result += bytes(size) if data is None else data[begin : begin + size].tobytes()
        for each in damage:
            first, last = max(each.position, start), min(each.end, end)
            if first < last:
                blank = memoryview(each.blank(self.segment_size))
                begin = first - each.position
                result[first - start : last - start] = blank[begin : begin + last - first]
        return result
