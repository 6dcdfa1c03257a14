"""The commit log: one endless sequence of records, in files of one size.

A record never spans two files. If the next record does not fit, a filler record (size, magic) ends
the file; so a record may take at most `segment_size - 8` bytes, as in RocketMQ.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_arrow.decode.boundaries import MAGIC_V1, MAGIC_V2
from rocketmq_arrow.decode.layout import PHYSICAL_OFFSET_AT
from rocketmq_broker.storage.disk.files import File, Files, crc32, join
from rocketmq_broker.storage.errors import DamagedStoreError, StorageError
from rocketmq_wire.model import Buffer

LOG_DIRECTORY: Final = "commitlog"
FILLER_MAGIC: Final = 0xCBD43194
FILLER: Final = struct.Struct(">II")
_TAIL_STEP: Final = 1024 * 1024
RECORD_HEAD: Final = struct.Struct(">iI")
"""A record's size and magic number."""
_POSITION: Final = struct.Struct(">q")


def segment_name(start: int) -> str:
    return join(LOG_DIRECTORY, f"{start:020d}")


def segment_starts(files: Files) -> list[int]:
    """The log position at which each file of the log begins, ascending."""
    return sorted(int(name) for name in files.names(LOG_DIRECTORY) if name.isdecimal())


def log_damage(
    position: int, segment_size: int, reason: str, expected: int = 0, found: int = 0
) -> DamagedStoreError:
    """The error that names the file and the byte of a log position."""
    at = position % segment_size
    return DamagedStoreError(segment_name(position - at), at, reason, expected, found)


def tail_of(file: File, begin: int, size: int) -> npt.NDArray[np.uint8]:
    """A copy of a file's bytes `[begin, size)`: a map must not read what was never written."""
    data = np.zeros(size - begin, np.uint8)
    for at in range(begin, min(file.data_end(), size), _TAIL_STEP):
        read = file.pread(min(_TAIL_STEP, size - at), at)
        data[at - begin : at - begin + len(read)] = np.frombuffer(read, np.uint8)
    return data


class Segment:
    """One file: the log's bytes `[start, start + size)`, written at their end, read by a map."""

    def __init__(self, files: Files, start: int, size: int, *, create: bool) -> None:
        self.start = start
        self.size = size
        self.name = segment_name(start)
        self._files = files
        file = files.open(self.name, create=create)
        # A crash may have left the file shorter; the rest was never written.
        if file.size() != size:
            try:
                file.resize(size)
            except StorageError:
                file.close()
                raise
        self._file: File | None = file
        self._is_unclear = False
        """True if a refused write may have left bytes behind the log's end."""
        self.view = file.map(size)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(self.view, np.uint8)

    @property
    def end(self) -> int:
        return self.start + self.size

    def write(self, data: Buffer, position: int) -> None:
        """Write at the log's end.

        If the disk refuses, a part may have been written. A whole record of that part could later
        begin where a shorter record ends, and recovery would keep it: so it is cleared, at the
        latest by the next write.
        """
        file = self._open()
        if self._is_unclear:
            self.clear_from(position)
        self._is_unclear = True
        try:
            file.pwrite(data, position - self.start)
        except StorageError:
            with suppress(StorageError):
                self.clear_from(position)
            raise
        self._is_unclear = False

    def sync(self) -> None:
        """Return once everything written to this segment is on the disk."""
        self._open().sync()

    def record_size(self, position: int) -> int | None:
        """The size of the record that says it begins at a log position; None without one."""
        begin = position - self.start
        if self.size - begin < PHYSICAL_OFFSET_AT + _POSITION.size:
            return None
        size, magic = RECORD_HEAD.unpack_from(self.view, begin)
        (written,) = _POSITION.unpack_from(self.view, begin + PHYSICAL_OFFSET_AT)
        return size if magic in (MAGIC_V1, MAGIC_V2) and written == position else None

    def reserve(self, position: int) -> None:
        """Take space for the zeros from a log position on, which checksums read."""
        self._open().reserve(position - self.start, self.end - position)

    def tail(self, position: int) -> npt.NDArray[np.uint8]:
        """A copy of the bytes from a log position on; see `tail_of`."""
        return tail_of(self._open(), position - self.start, self.size)

    def clear_from(self, position: int) -> None:
        """Replace everything from a log position on by zeros."""
        file = self._open()
        file.resize(position - self.start)
        file.resize(self.size)
        self._is_unclear = False

    def close(self) -> None:
        """Close the file handle; the map and all views of it stay readable."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.name)
        return self._file


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
        return sorted(self._segments)

    def room(self) -> int:
        """Number of bytes of records that fit in the current file."""
        return self.segment_size - self.end % self.segment_size - FILLER.size

    def append(self, data: Buffer) -> None:
        """Write whole records that fit in `room()`; `sync` brings them to the disk."""
        segment = self._segments.get(self._base(self.end))
        if segment is None:
            segment = self._create(self.end)
        segment.write(data, self.end)
        self.end += memoryview(data).nbytes

    def roll(self) -> None:
        """End the current file with a filler record; the next append begins a new one."""
        left = self.segment_size - self.end % self.segment_size
        segment = self._segments.get(self._base(self.end))
        if segment is None:
            segment = self._create(self.end)
        segment.reserve(self.end)
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

    def segment_of(self, position: int) -> Segment:
        """The file that holds a position. Raises KeyError if none does."""
        segment = self.segment_at(position)
        if segment is None:
            # A damaged queue entry leads here: the text is what the reader's log shows.
            raise KeyError(f"the log has no position {position}")
        return segment

    def view(self, position: int, size: int) -> memoryview:
        """Bytes of the log inside one file. Raises KeyError if there is no file."""
        segment = self.segment_of(position)
        begin = position - segment.start
        return segment.view[begin : begin + size]

    def crc(self, start: int, end: int) -> int:
        """CRC-32 of `[start, end)`."""
        found = 0
        for base in range(self._base(start), end, self.segment_size):
            begin, stop = max(start, base), min(end, base + self.segment_size)
            found = crc32(self.view(begin, stop - begin), found)
        return found

    def forget_before(self, position: int) -> list[str]:
        """Stop serving the files that end at or before a position; returns their names."""
        self.start = max(self.start, position)
        bases = [base for base in self.segment_starts if base + self.segment_size <= position]
        for base in bases:
            self._segments.pop(base).close()
        return [segment_name(base) for base in bases]

    def drop(self, base: int) -> None:
        self._segments.pop(base).close()

    def close(self) -> None:
        for segment in self._segments.values():
            segment.close()

    def _base(self, position: int) -> int:
        return position - position % self.segment_size

    def _create(self, position: int) -> Segment:
        segment = Segment(self._files, self._base(position), self.segment_size, create=True)
        self._segments[segment.start] = segment
        self._is_directory_dirty = True
        return segment
