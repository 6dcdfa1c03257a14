"""The commit log: one endless sequence of records, in files of one size.

A record never spans two files. If the next record does not fit, a filler record (size, magic) ends
the file; so a record may take at most `segment_size - 8` bytes, as in RocketMQ.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_broker.storage.disk.files import Files
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.log.segment import LOG_DIRECTORY, Segment, segment_name
from rocketmq_wire.model import Buffer

FILLER_MAGIC: Final = 0xCBD43194
FILLER: Final = struct.Struct(">II")


class CommitLog:
    """Positions `[start, end)`. One thread appends; any thread may read or sync."""

    def __init__(self, files: Files, segment_size: int, segments: list[Segment], end: int) -> None:
        self.segment_size = segment_size
        self.start = segments[0].start if segments else end - end % segment_size
        """First position that is kept."""
        self.end = end
        self._files = files
        self._segments = {segment.start: segment for segment in segments}
        # After a crash the names of older files may not be on the disk either.
        self._is_directory_dirty = True

    @property
    def segment_starts(self) -> list[int]:
        """Where each file begins, oldest first."""
        return sorted(self._segments)

    def room(self) -> int:
        """Number of bytes of records that fit in the current file."""
        return self.segment_size - self.end % self.segment_size - FILLER.size

    def append(self, data: Buffer) -> None:
        """Write whole records that fit in `room()`; `sync` brings them to the disk."""
        segment = self._segments.get(self._base(self.end))
        if segment is None:
            segment = self._create(self.end)
        try:
            segment.write(data, self.end)
        except StorageError:
            # A part may have been written. A whole record of this refused send could later begin
            # where a shorter record ends, and recovery would keep it.
            segment.clear_from(self.end)
            raise
        self.end += memoryview(data).nbytes

    def roll(self) -> None:
        """End the current file with a filler record; the next append begins a new one."""
        left = self.segment_size - self.end % self.segment_size
        segment = self._segments.get(self._base(self.end))
        if segment is None:
            segment = self._create(self.end)
        segment.write(FILLER.pack(left, FILLER_MAGIC), self.end)
        self.end += left

    def sync(self, start: int, end: int) -> None:
        """Return once the bytes `[start, end)` are on the disk."""
        if self._is_directory_dirty:
            self._is_directory_dirty = False
            self._files.sync_directory(LOG_DIRECTORY)
        for base in range(self._base(start), end, self.segment_size):
            segment = self._segments[base]
            segment.sync()
            if segment.end <= end:
                segment.close()

    def segment_at(self, position: int) -> Segment | None:
        """The file that holds a position; None if none does."""
        return self._segments.get(self._base(position))

    def view(self, position: int, size: int) -> memoryview:
        """Bytes of the log inside one file. Raises KeyError if there is no file."""
        segment = self._segments[self._base(position)]
        begin = position - segment.start
        return segment.view[begin : begin + size]

    def bytes_at(self, position: int) -> npt.NDArray[np.uint8]:
        """The whole file that holds a position. Raises KeyError if there is none."""
        return self._segments[self._base(position)].bytes

    def forget_before(self, position: int) -> list[str]:
        """Stop serving the files that end at or before a position; returns their names."""
        self.start = max(self.start, position)
        bases = [base for base in self.segment_starts if base + self.segment_size <= position]
        for base in bases:
            self._segments.pop(base).close()
        return [segment_name(base) for base in bases]

    def drop(self, base: int) -> None:
        """Stop using the file that begins at `base`."""
        self._segments.pop(base).close()

    def close(self) -> None:
        """Close every file handle."""
        for segment in self._segments.values():
            segment.close()

    def _base(self, position: int) -> int:
        return position - position % self.segment_size

    def _create(self, position: int) -> Segment:
        segment = Segment(self._files, self._base(position), self.segment_size, create=True)
        self._segments[segment.start] = segment
        self._is_directory_dirty = True
        return segment
