"""Checksums of ranges of the commit log, oldest first, 24 bytes each (`log.seals`).

u64 start   u64 end   u32 CRC-32 of the log bytes [start, end)   u32 CRC-32 of the 20 bytes before
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_broker.storage.disk.checksum import crc32
from rocketmq_broker.storage.disk.files import Files, read_file, write_file
from rocketmq_broker.storage.errors import DamagedStoreError

LOG_CHECKSUMS_NAME: Final = "log.seals"
_FIELDS: Final = struct.Struct(">QQI")
_CRC: Final = struct.Struct(">I")
_ENTRY_SIZE: Final = _FIELDS.size + _CRC.size
_EXPIRED_COUNT_MIN: Final = 1024
"""The file is written again once it has this many checksums of deleted log."""


@dataclass(frozen=True, slots=True)
class LogChecksum:
    """CRC-32 of the log's bytes `[start, end)`."""

    start: int
    end: int
    crc: int

    def encode(self) -> bytes:
        fields = _FIELDS.pack(self.start, self.end, self.crc)
        return fields + _CRC.pack(crc32(fields, 0))


class LogChecksumFile:
    """The checksums up to the mark's anchor; new ones overwrite what a crash left behind them."""

    def __init__(self, files: Files, *, log_start: int, anchor: int, create: bool = False) -> None:
        self._file = files.open(LOG_CHECKSUMS_NAME, create=create)
        found = _decode(self._file.pread(self._file.size(), 0), anchor)
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
    return _decode(read_file(files, LOG_CHECKSUMS_NAME) or b"", anchor)


def write_log_checksums(files: Files, checksums: Iterable[LogChecksum]) -> None:
    """Replace the file by one with these checksums."""
    write_file(files, LOG_CHECKSUMS_NAME, b"".join(each.encode() for each in checksums))


def _decode(data: bytes, anchor: int) -> list[LogChecksum]:
    checksums: list[LogChecksum] = []
    for position in range(0, len(data) - _ENTRY_SIZE + 1, _ENTRY_SIZE):
        fields = data[position : position + _FIELDS.size]
        (found,) = _CRC.unpack_from(data, position + _FIELDS.size)
        checksum = LogChecksum(*_FIELDS.unpack(fields))
        is_next = not checksums or checksum.start == checksums[-1].end
        if found != crc32(fields, 0) or not is_next or checksum.end > anchor:
            break
        checksums.append(checksum)
    return checksums
