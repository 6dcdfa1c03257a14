"""Makes the log durable: fdatasync, then the checksum of the new bytes, then the mark.

The durable mark (`durable.mark`) says how far acknowledged data reaches, with the checksum of its
newest bytes. Its file has two slots on separate pages, written in turn. A torn write damages only
the slot being written, and its data was never acknowledged.

    magic "RQMK"  u16 version  u16 zero  u64 sequence
    u64 end           everything before this log position is acknowledged or may be
    u64 log_start     everything before this log position was deleted on purpose
    u64 anchor        where the checksum begins; log checksums cover older data
    u32 checksum      CRC-32 of the log bytes [anchor, end)
    u32 queue_file_entries   u64 segment_size    u32 CRC-32 of all of the above

If `[anchor, end)` is long enough, or its file of the log is full, the checksum moves to the log
checksums (`log.seals`), and a new one begins. So all acknowledged bytes of the log have a checksum.
The log checksums are 24 bytes each, oldest first:

    u64 start  u64 end  u32 CRC-32 of the log bytes [start, end)  u32 CRC-32 of the 20 bytes before
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rocketmq_broker.storage.disk.files import Files, crc32, read_file, write_file
from rocketmq_broker.storage.errors import DamagedStoreError, StorageError
from rocketmq_broker.storage.log.commit_log import CommitLog
from rocketmq_broker.storage.settings import StoreConfig

MARK_NAME: Final = "durable.mark"
LOG_CHECKSUMS_NAME: Final = "log.seals"
_HEAD: Final = (b"RQMK", 1, 0)
"""Magic, version and zero."""
_FIELDS: Final = struct.Struct(">4sHHQQQQIIQ")
_CHECKSUM: Final = struct.Struct(">I")
_SLOT_SIZE: Final = _FIELDS.size + _CHECKSUM.size
_SLOT_DISTANCE: Final = 4096
_SLOT_COUNT: Final = 2
_MARK_SIZE: Final = _SLOT_COUNT * _SLOT_DISTANCE
_RANGE: Final = struct.Struct(">QQI")
_ENTRY_SIZE: Final = _RANGE.size + _CHECKSUM.size
_EXPIRED_COUNT_MIN: Final = 1024
"""The log checksums are written again once they have this many of deleted log."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One state of the durable mark."""

    end: int
    log_start: int
    anchor: int
    checksum: int
    segment_size: int
    queue_file_entries: int

    @classmethod
    def at_anchor(
        cls, end: int, log_start: int, segment_size: int, queue_file_entries: int
    ) -> Mark:
        """A mark without a checksum: log checksums cover everything before its end."""
        return cls(end, log_start, end, 0, segment_size, queue_file_entries)

    def encode(self, sequence: int) -> bytes:
        checked = (self.end, self.log_start, self.anchor, self.checksum)
        sizes = (self.queue_file_entries, self.segment_size)
        fields = _FIELDS.pack(*_HEAD, sequence, *checked, *sizes)
        return fields + _CHECKSUM.pack(crc32(fields, 0))


class MarkFile:
    def __init__(self, files: Files, *, create: bool = False) -> None:
        self._file = files.open(MARK_NAME, create=create)
        if self._file.size() < _MARK_SIZE:
            self._file.resize(_MARK_SIZE)
        sequence, mark = _newest(self._file.pread(_MARK_SIZE, 0))
        self._sequence = sequence
        self.mark = mark
        """The newest whole slot; None if there is none."""

    def write(self, mark: Mark) -> None:
        """Return once the mark is on the disk."""
        sequence = self._sequence + 1
        slot = mark.encode(sequence)
        self._file.pwrite(slot, sequence % _SLOT_COUNT * _SLOT_DISTANCE)
        self._file.sync()
        self._sequence = sequence
        self.mark = mark

    def close(self) -> None:
        self._file.close()


def read_mark(files: Files) -> Mark | None:
    """The newest whole slot, or None; changes nothing in the file."""
    return _newest((read_file(files, MARK_NAME) or b"")[:_MARK_SIZE])[1]


def write_first_mark(files: Files, mark: Mark) -> None:
    """Replace the mark's file by one with only this mark, in one step."""
    write_file(files, MARK_NAME, mark.encode(0).ljust(_MARK_SIZE, b"\x00"))


def _newest(data: bytes) -> tuple[int, Mark | None]:
    """Sequence and mark of the whole slot with the highest sequence; 0 and None without one."""
    found: tuple[int, Mark | None] = (0, None)
    for at in range(0, len(data) - _SLOT_SIZE + 1, _SLOT_DISTANCE):
        fields = data[at : at + _FIELDS.size]
        *head, sequence, end, log_start, anchor, checksum, entries, size = _FIELDS.unpack(fields)
        is_whole = _CHECKSUM.unpack_from(data, at + _FIELDS.size)[0] == crc32(fields, 0)
        if tuple(head) == _HEAD and is_whole and (found[1] is None or sequence > found[0]):
            found = sequence, Mark(end, log_start, anchor, checksum, size, entries)
    return found


@dataclass(frozen=True, slots=True)
class LogChecksum:
    """CRC-32 of the log's bytes `[start, end)`."""

    start: int
    end: int
    crc: int

    def encode(self) -> bytes:
        fields = _RANGE.pack(self.start, self.end, self.crc)
        return fields + _CHECKSUM.pack(crc32(fields, 0))


class LogChecksumFile:
    """The checksums up to the mark's anchor; new ones overwrite what a crash left behind them."""

    def __init__(self, files: Files, *, log_start: int, anchor: int, create: bool = False) -> None:
        self._file = files.open(LOG_CHECKSUMS_NAME, create=create)
        found = _decode_checksums(self._file.pread(self._file.size(), 0), anchor)
        require_checksums(found, log_start=log_start, anchor=anchor)
        self.checksums = [checksum for checksum in found if checksum.end > log_start]
        """Checksums of log that is kept when the file is opened."""
        self._position = len(found) * _ENTRY_SIZE
        if len(found) - len(self.checksums) >= _EXPIRED_COUNT_MIN:
            write_log_checksums(files, self.checksums)
            self._file.close()
            self._file = files.open(LOG_CHECKSUMS_NAME)
            self._position = len(self.checksums) * _ENTRY_SIZE

    def append(self, checksum: LogChecksum) -> None:
        self._file.pwrite(checksum.encode(), self._position)
        self._file.sync()
        self._position += _ENTRY_SIZE

    def close(self) -> None:
        self._file.close()


def require_checksums(checksums: Sequence[LogChecksum], *, log_start: int, anchor: int) -> None:
    """Raise DamagedStoreError if the checksums do not reach the mark's anchor."""
    reached = checksums[-1].end if checksums else log_start
    if reached < anchor:
        position = len(checksums) * _ENTRY_SIZE
        reason = "a checksum of acknowledged log is missing or damaged"
        raise DamagedStoreError(LOG_CHECKSUMS_NAME, position, reason, anchor, reached)


def read_log_checksums(files: Files, *, anchor: int) -> list[LogChecksum]:
    """The checksums up to the first unreadable one; changes nothing in the file."""
    return _decode_checksums(read_file(files, LOG_CHECKSUMS_NAME) or b"", anchor)


def write_log_checksums(files: Files, checksums: Iterable[LogChecksum]) -> None:
    """Replace the file by one with these checksums."""
    write_file(files, LOG_CHECKSUMS_NAME, b"".join(each.encode() for each in checksums))


def _decode_checksums(data: bytes, anchor: int) -> list[LogChecksum]:
    checksums: list[LogChecksum] = []
    for position in range(0, len(data) - _ENTRY_SIZE + 1, _ENTRY_SIZE):
        fields = data[position : position + _RANGE.size]
        (found,) = _CHECKSUM.unpack_from(data, position + _RANGE.size)
        checksum = LogChecksum(*_RANGE.unpack(fields))
        is_next = not checksums or checksum.start == checksums[-1].end
        if found != crc32(fields, 0) or not is_next or checksum.end > anchor:
            break
        checksums.append(checksum)
    return checksums


class Durability:
    """Owns the mark and the log checksums; the log is durable up to `end`.

    A log in memory is never durable: it counts as durable up to its end.
    """

    def __init__(
        self,
        log: CommitLog,
        mark_file: MarkFile,
        checksum_file: LogChecksumFile,
        config: StoreConfig,
    ) -> None:
        assert mark_file.mark is not None
        self._log = log
        self._mark_file = mark_file
        self._checksum_file = checksum_file
        self._config = config
        self._mark = mark_file.mark
        self._lock = threading.Lock()
        self._failure: StorageError | None = None

    @property
    def end(self) -> int:
        return self._log.end if self._config.is_memory else self._mark.end

    def sync(self) -> int:
        """Make everything appended so far durable; returns the durable end.

        Raises:
            StorageError: for good. After a failed fsync the content of the disk is unknown, and
                the next fsync would wrongly succeed. So nothing is acknowledged until a restart.
        """
        if self._config.is_memory:
            return self._log.end
        with self._lock:
            if self._failure is not None:
                raise self._failure
            end = self._log.end
            if end > self._mark.end:
                try:
                    self._advance(end)
                except StorageError as error:
                    self._failure = error
                    raise
            return self._mark.end

    def move_log_start(self, log_start: int) -> None:
        """Return once the mark on the disk has this start; then older files may be removed."""
        with self._lock:
            self._write(replace(self._mark, log_start=log_start))

    def repeat_mark(self) -> None:
        """Write the mark into the other slot, too: a closed store then survives a damaged slot."""
        with self._lock:
            self._write(self._mark)

    def close(self) -> None:
        self._mark_file.close()
        self._checksum_file.close()

    def _advance(self, end: int) -> None:
        mark = self._mark
        self._log.sync(mark.end, end)
        position, anchor, checksum = mark.end, mark.anchor, mark.checksum
        while position < end:
            segment_end = position - position % self._log.segment_size + self._log.segment_size
            piece_end = min(end, segment_end)
            checksum = crc32(self._log.view(position, piece_end - position), checksum)
            position = piece_end
            if position == segment_end or position - anchor >= self._config.checksum_range_size:
                self._checksum_file.append(LogChecksum(anchor, position, checksum))
                anchor, checksum = position, 0
        self._write(replace(mark, end=end, anchor=anchor, checksum=checksum))

    def _write(self, mark: Mark) -> None:
        self._mark_file.write(mark)
        self._mark = mark
