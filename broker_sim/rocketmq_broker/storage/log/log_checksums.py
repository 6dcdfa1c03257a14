"""Checksums of closed stretches of the commit log, oldest first, 24 bytes each.

u64 start   u64 end   u32 CRC-32 of the log bytes [start, end)   u32 CRC-32 of the 20 bytes before
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from rocketmq_broker.storage.disk.checksum import crc32
from rocketmq_broker.storage.disk.files import Files, read_file, write_file
from rocketmq_broker.storage.errors import DamagedStoreError

LOG_CHECKSUMS_NAME: Final = "log.seals"
_FIELDS: Final = struct.Struct(">QQI")
_CHECKSUM: Final = struct.Struct(">I")
_SEAL_SIZE: Final = _FIELDS.size + _CHECKSUM.size
_FORGOTTEN_COUNT_MIN: Final = 1024
"""The file is written anew once this many seals speak of deleted log."""


@dataclass(frozen=True, slots=True)
class LogChecksum:
    """The checksum of the log's bytes `[start, end)`."""

    start: int
    end: int
    checksum: int

    def encode(self) -> bytes:
        fields = _FIELDS.pack(self.start, self.end, self.checksum)
        return fields + _CHECKSUM.pack(crc32(fields, 0))


class LogChecksumFile:
    """The seals up to the mark's anchor; what a crash left behind them is written over."""

    def __init__(self, files: Files, *, log_start: int, anchor: int, create: bool = False) -> None:
        self._file = files.open(LOG_CHECKSUMS_NAME, create=create)
        self.seals = self._load(log_start=log_start, anchor=anchor)
        self._position = len(self.seals) * _SEAL_SIZE
        kept = [seal for seal in self.seals if seal.end > log_start]
        if len(self.seals) - len(kept) >= _FORGOTTEN_COUNT_MIN:
            write_file(files, LOG_CHECKSUMS_NAME, b"".join(seal.encode() for seal in kept))
            self._file.close()
            self._file = files.open(LOG_CHECKSUMS_NAME)
            self._position = len(kept) * _SEAL_SIZE
        self.seals = kept

    def append(self, seal: LogChecksum) -> None:
        """Return once the seal is on the disk."""
        self._file.pwrite(seal.encode(), self._position)
        self._file.sync()
        self._position += _SEAL_SIZE

    def close(self) -> None:
        self._file.close()

    def _load(self, *, log_start: int, anchor: int) -> list[LogChecksum]:
        seals = _whole_seals(self._file.pread(self._file.size(), 0), anchor)
        reached = seals[-1].end if seals else log_start
        if reached < anchor:
            reason = "a checksum of acknowledged log is missing or damaged"
            raise DamagedStoreError(
                LOG_CHECKSUMS_NAME, len(seals) * _SEAL_SIZE, reason, anchor, reached
            )
        return seals


def read_log_checksums(files: Files, *, anchor: int) -> list[LogChecksum]:
    """The seals up to the first that cannot be read; changes nothing in the file."""
    return _whole_seals(read_file(files, LOG_CHECKSUMS_NAME) or b"", anchor)


def _whole_seals(data: bytes, anchor: int) -> list[LogChecksum]:
    seals: list[LogChecksum] = []
    for position in range(0, len(data) - _SEAL_SIZE + 1, _SEAL_SIZE):
        fields = data[position : position + _FIELDS.size]
        (found,) = _CHECKSUM.unpack_from(data, position + _FIELDS.size)
        seal = LogChecksum(*_FIELDS.unpack(fields))
        is_next = not seals or seal.start == seals[-1].end
        if found != crc32(fields, 0) or not is_next or seal.end > anchor:
            break
        seals.append(seal)
    return seals
