"""Consume queues: for each queue the position, size and tag hash of its records, 20 bytes an entry.

    i64 log position   i32 record size   i64 tag hash, or due time     offset n is at byte 20 * n

A queue's entries are kept in files of `entries_per_file` entries, named by the byte they begin at.
They are derived from the log: written when records are published, on the disk after a checkpoint,
which has the CRC-32 of each file's entries. After a start, a file is compared with it before an
entry is read.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_broker.storage.disk.files import File, Files, crc32, join, read_file
from rocketmq_broker.storage.errors import DamagedStoreError, StorageError
from rocketmq_wire.model import Bounds

QUEUE_DIRECTORY: Final = "consumequeue"
ENTRY: Final = np.dtype([("position", ">i8"), ("size", ">i4"), ("tag_hash", ">i8")])
BLANK_ENTRY_SIZE: Final = 2**31 - 1
"""Record size in an entry without a message: before a queue's first message, or in a hole."""
_OPEN_FILES_MAX: Final = 200
"""Most handles kept open: far below the usual limit of 1,024."""

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000
DELAYS_MS: Final = (
    *(seconds * _SECOND for seconds in (1, 5, 10, 30)),
    *(minutes * _MINUTE for minutes in (*range(1, 11), 20, 30)),
    *(hours * _HOUR for hours in (1, 2)),
)
"""Delays by level. Levels count from 1; the queue of a level has the index below it."""

Entries = npt.NDArray[np.void]
QueueKey = tuple[str, int]
"""Topic and index of a queue."""


def join_entries(parts: Sequence[Entries]) -> Entries:
    if len(parts) == 1:
        return parts[0]
    # numpy's concatenate would convert the fields to the machine's byte order.
    return np.frombuffer(b"".join(part.data for part in parts), ENTRY)


def make_entries(
    positions: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int32],
    tag_hashes: npt.NDArray[np.int64],
) -> Entries:
    entries = np.empty(len(positions), ENTRY)
    entries["position"] = positions
    entries["size"] = sizes
    entries["tag_hash"] = tag_hashes
    return entries


def blank_entries(count: int, position: int) -> Entries:
    """Entries without messages, all of one log position."""
    return make_entries(
        np.full(count, position), np.full(count, BLANK_ENTRY_SIZE, np.int32), np.zeros(count, "i8")
    )


def entry_hashes(
    topic: str,
    queue_index: int | npt.NDArray[np.int64],
    store_ms: int | npt.NDArray[np.int64],
    tag_hashes: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """The third field of the entries of one topic's records.

    Entries of delayed messages hold the due time instead of the tag's hash: RocketMQ delivers by
    it, and would take every message with a tag's hash there as due.
    """
    if topic != SCHEDULE_TOPIC:
        return tag_hashes
    levels = np.clip(queue_index, 0, len(DELAYS_MS) - 1)
    due_ms = np.array(DELAYS_MS, np.int64)[levels] + store_ms
    return np.broadcast_to(due_ms, len(tag_hashes))


def written(entries: Entries) -> Entries:
    """A file's entries before its unused end, which is zeros."""
    unused = np.flatnonzero(entries["size"] <= 0)
    return entries[: int(unused[0])] if len(unused) else entries


def read_entries(files: Files, directory: str) -> Iterator[tuple[int, Entries]]:
    """First offset and entries of each file of a queue, as far as they are written."""
    for name in files.names(directory):
        if not name.isdecimal():
            continue
        data = read_file(files, join(directory, name)) or b""
        entries = np.frombuffer(data[: len(data) - len(data) % ENTRY.itemsize], ENTRY)
        yield int(name) // ENTRY.itemsize, entries


class OpenFiles:
    """Handles of the files used last; opens, creates and closes them as needed."""

    def __init__(self, files: Files, *, count_max: int = _OPEN_FILES_MAX) -> None:
        self._files = files
        self._count_max = count_max
        self._open: OrderedDict[str, File] = OrderedDict()
        self._lock = threading.RLock()
        self.dirty: set[str] = set()
        """Files written since the last checkpoint."""

    def pread(self, name: str, size: int, position: int) -> bytes:
        """Read up to `size` bytes. Raises MissingFileError."""
        with self._lock:
            return self._get(name, None).pread(size, position)

    def pwrite(self, name: str, data: memoryview, position: int, *, file_size: int) -> None:
        """Write; a missing file is created with `file_size` zeros."""
        with self._lock:
            self._get(name, file_size).pwrite(data, position)
            self.dirty.add(name)

    def take_dirty(self) -> set[str]:
        """The dirty files, which count as synced from now on."""
        with self._lock:
            taken = self.dirty
            self.dirty = set()
            return taken

    def close_below(self, directory: str) -> None:
        """Close all files below a directory, before they are removed."""
        with self._lock:
            for name in [*self._open, *self.dirty]:
                if name.startswith(directory + "/"):
                    self.close_file(name)

    def close_file(self, name: str) -> None:
        with self._lock:
            self.dirty.discard(name)
            file = self._open.pop(name, None)
            if file is not None:
                file.close()

    def close(self) -> None:
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

    def _get(self, name: str, create_size: int | None) -> File:
        file = self._open.get(name)
        if file is not None:
            self._open.move_to_end(name)
            return file
        file = self._files.open(name, create=create_size is not None)
        if create_size is not None and file.size() != create_size:
            try:
                file.resize(create_size)
            except StorageError:
                file.close()
                raise
        self._open[name] = file
        if len(self._open) > self._count_max:
            self._open.popitem(last=False)[1].close()
        return file


class QueueIndex:
    """One queue. Offsets `[start, end)` can be read; `next` is the offset of the next message."""

    def __init__(
        self, open_files: OpenFiles, topic: str, index: int, entries_per_file: int
    ) -> None:
        self.topic = topic
        self.index = index
        self.directory = join(QUEUE_DIRECTORY, topic, str(index))
        self.start = 0
        self.end = 0
        self.next = 0
        self.is_deleted = False
        self.holes: tuple[Bounds, ...] = ()
        """Offsets whose messages a repair gave up, ascending."""
        self.unverified: dict[str, tuple[int, int]] = {}
        """Files not compared since the start: number of bytes and their CRC-32, by name."""
        self._files = open_files
        self._entries_per_file = entries_per_file
        self._checksums: dict[int, int] = {}
        """CRC-32 of the entries before `_checked_end`, by the first offset of their file."""
        self._checked_end = 0

    def file_name(self, offset: int) -> str:
        first = offset - offset % self._entries_per_file
        return join(self.directory, f"{first * ENTRY.itemsize:020d}")

    def write(self, offset: int, entries: Entries) -> None:
        """Write entries from an offset on; the caller moves `end`."""
        while len(entries):
            begin = offset % self._entries_per_file
            count = min(len(entries), self._entries_per_file - begin)
            self._files.pwrite(
                self.file_name(offset),
                entries[:count].view(np.uint8).data,
                begin * ENTRY.itemsize,
                file_size=self._entries_per_file * ENTRY.itemsize,
            )
            offset, entries = offset + count, entries[count:]

    def read(self, start: int, end: int) -> Entries:
        """The entries of `[start, end)`, which must lie inside the bounds."""
        parts = []
        while start < end:
            count = min(end - start, self.left_in_file(start))
            if self.unverified:
                self.verify(self.file_name(start))
            begin = start % self._entries_per_file * ENTRY.itemsize
            data = self._files.pread(self.file_name(start), count * ENTRY.itemsize, begin)
            parts.append(np.frombuffer(data, ENTRY))
            start += count
        return join_entries(parts)

    def checksums(self, start: int, end: int) -> tuple[int, ...]:
        """CRC-32 of each file's entries, for bounds of this queue; reads what is new since then.

        Only one thread may call it; entries before `end` do not change.
        """
        step = self._entries_per_file
        at = max(self._checked_end, start - start % step)
        while at < end:
            first = at - at % step
            count = min(first + step, end) - at
            name, size = self.file_name(at), count * ENTRY.itemsize
            data = self._files.pread(name, size, (at - first) * ENTRY.itemsize)
            self._checksums[first] = crc32(data, self._checksums[first] if at > first else 0)
            at += count
        self._checked_end = at
        return tuple(self._checksums[first] for first in range(start - start % step, end, step))

    def expect(self, checksums: Sequence[int]) -> bool:
        """Take the checksums that the files must have; False if they are not one for each file."""
        step = self._entries_per_file
        file_starts = (
            range(self.start - self.start % step, self.end, step) if checksums else range(0)
        )
        if self.start < self.end and len(file_starts) != len(checksums):
            return False
        for first, checksum in zip(file_starts, checksums, strict=True):
            count = min(first + step, self.end) - first
            self.unverified[self.file_name(first)] = count * ENTRY.itemsize, checksum
            self._checksums[first] = checksum
        self._checked_end = self.end if checksums else self.end - self.end % step
        return True

    def verify(self, name: str) -> int:
        """Compare a file with its checksum, once; returns the number of bytes read.

        Raises DamagedStoreError: its entries are not what was written.
        """
        size, expected = self.unverified.get(name, (0, 0))
        if size:
            found = crc32(self._files.pread(name, size, 0), 0)
            if found != expected:
                reason = f"the entries of the first {size} bytes are not what was written"
                raise DamagedStoreError(name, 0, reason, expected, found)
            del self.unverified[name]
        return size

    def hole_end(self, offset: int) -> int | None:
        """The end of the hole that contains an offset; None if no hole does."""
        for hole in self.holes:
            if hole.start <= offset < hole.end:
                return hole.end
        return None

    def end_before_hole(self, start: int, end: int) -> int:
        """The end of `[start, end)`, or the start of the first hole in it."""
        return min((hole.start for hole in self.holes if start <= hole.start < end), default=end)

    def left_in_file(self, offset: int) -> int:
        """Number of entries that an offset's file holds from this offset on."""
        return self._entries_per_file - offset % self._entries_per_file

    def position_of(self, offset: int) -> int:
        return int(self.read(offset, offset + 1)["position"][0])

    def first_at_or_after(self, position: int) -> int:
        """The first offset whose record is at or behind a log position; `end` if there is none."""
        offsets = range(self.start, self.end)
        return self.start + bisect_left(offsets, position, key=self.position_of)
