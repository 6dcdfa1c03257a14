"""Verifies a whole store without changing it, and names every damaged message.

The log's checksums show whether its bytes are what was written. The consume queues list the
messages that must be there, so damage is named by queue and offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_arrow.decode.layout import (
    CRC_AT,
    CRC_MASK,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    read_layout,
)
from rocketmq_arrow.kernels.gather import Bytes
from rocketmq_broker.storage.disk.checksum import crc32
from rocketmq_broker.storage.disk.files import Files
from rocketmq_broker.storage.errors import DamagedStoreError, MissingFileError
from rocketmq_broker.storage.log.durable_mark import MARK_NAME, Mark, read_mark
from rocketmq_broker.storage.log.log_checksums import LogChecksum, LogChecksumFile
from rocketmq_broker.storage.log.segment import LOG_DIRECTORY, segment_name, segment_starts
from rocketmq_broker.storage.queues.consume_queue import (
    BLANK_ENTRY_SIZE,
    Entries,
    QueueKey,
    read_entries,
)
from rocketmq_broker.storage.queues.derived import DERIVED_NAME, load_derived
from rocketmq_broker.storage.queues.lite_queues import queue_directories
from rocketmq_broker.storage.repair.log_files import Say, silent

_ENTRIES_PER_STEP: Final = 16_384

Ranges = list[tuple[int, int]]


@dataclass(slots=True)
class Inspection:
    """The contents of a store, and its damage."""

    log_start: int = 0
    log_end: int = 0
    """End of acknowledged data; the end of the files if there is no mark."""
    has_mark: bool = True
    has_own_files: bool = True
    """False for a store that RocketMQ wrote."""
    is_rebuilding: bool = False
    """True if the next start rebuilds the queues, as after a repair: they were not checked."""
    message_count: int = 0
    queue_count: int = 0
    verified_size: int = 0
    """Bytes of the log that were compared with their checksums."""
    problems: list[str] = field(default_factory=list)
    damaged: dict[QueueKey, Ranges] = field(default_factory=dict)
    """Offsets `[start, end)` of the messages that cannot be served, by queue."""

    @property
    def is_sound(self) -> bool:
        return not self.problems and not self.damaged


def inspect(files: Files, say: Say = silent) -> Inspection:
    """Verify the whole store. The caller holds its lock."""
    found = Inspection()
    log = _Log(files)
    mark = _read_mark(files, found)
    if mark is not None:
        found.log_start, found.log_end = mark.log_start, mark.end
        _compare_checksums(files, log, mark, found, say)
    elif log.starts:
        found.log_start, found.log_end = log.starts[0], log.end
    derived = load_derived(files)
    found.is_rebuilding = derived is not None and derived.is_rebuilding
    if found.is_rebuilding:
        # The queues' files are older than the log, and no start reads them.
        return found
    for key, directory in queue_directories(files):
        found.queue_count += 1
        damaged = _inspect_queue(files, directory, log, found, say)
        if damaged:
            found.damaged[key] = damaged
    return found


class _LogFile(NamedTuple):
    start: int
    data: Bytes


class _Log:
    """The log's files, mapped."""

    def __init__(self, files: Files) -> None:
        self._files: dict[int, Bytes] = {}
        self.starts = segment_starts(files)
        for start in self.starts:
            file = files.open(segment_name(start))
            size = file.size()
            view = file.map(size) if size else memoryview(b"")
            self._files[start] = np.frombuffer(view, np.uint8)
            file.close()

    @property
    def end(self) -> int:
        return self.starts[-1] + len(self._files[self.starts[-1]])

    def at(self, position: int) -> _LogFile | None:
        """The file that holds a position; None if none does."""
        index = int(np.searchsorted(self.starts, position, side="right")) - 1
        if index < 0:
            return None
        start = self.starts[index]
        data = self._files[start]
        return _LogFile(start, data) if position < start + len(data) else None


def _read_mark(files: Files, found: Inspection) -> Mark | None:
    names = files.names("")
    found.has_mark = MARK_NAME in names
    found.has_own_files = found.has_mark or DERIVED_NAME in names
    mark = read_mark(files)
    if found.has_mark and mark is None:
        found.problems.append(f"{MARK_NAME}: the durable mark is unreadable")
    elif found.has_own_files and mark is None:
        found.problems.append(f"{MARK_NAME}: the durable mark is missing")
    return mark


def _compare_checksums(files: Files, log: _Log, mark: Mark, found: Inspection, say: Say) -> None:
    checksums: list[LogChecksum] = []
    try:
        file = LogChecksumFile(files, log_start=mark.log_start, anchor=mark.anchor)
        file.close()
        checksums = [each for each in file.checksums if each.start >= mark.log_start]
    except (DamagedStoreError, MissingFileError) as error:
        found.problems.append(f"{error.file} byte={error.position}: {error.reason}")
    if mark.end > mark.anchor:
        checksums.append(LogChecksum(mark.anchor, mark.end, mark.checksum))
    for checksum in checksums:
        crc, position = 0, checksum.start
        while position < checksum.end:
            file_at = log.at(position)
            if file_at is None:
                name = segment_name(position - position % mark.segment_size)
                found.problems.append(f"{name}: acknowledged log from byte {position} is missing")
                break
            piece = file_at.data[position - file_at.start : checksum.end - file_at.start]
            crc = crc32(piece.data, crc)
            position += len(piece)
            found.verified_size += len(piece)
            say(f"comparing the log: {found.verified_size * 100 // (mark.end - mark.log_start)} %")
        if position == checksum.end and crc != checksum.crc:
            found.problems.append(
                f"{LOG_DIRECTORY}: positions {checksum.start} to {checksum.end} are not what was "
                f"written, expected {checksum.crc:#x} and found {crc:#x}"
            )


def _inspect_queue(files: Files, directory: str, log: _Log, found: Inspection, say: Say) -> Ranges:
    """The damaged offsets of one queue."""
    damaged: Ranges = []
    for first, entries in read_entries(files, directory):
        unused = np.flatnonzero(entries["size"] <= 0)
        used = entries[: int(unused[0])] if len(unused) else entries
        for begin in range(0, len(used), _ENTRIES_PER_STEP):
            step = used[begin : begin + _ENTRIES_PER_STEP]
            offsets = first + begin + np.arange(len(step))
            is_checked = (step["size"] != BLANK_ENTRY_SIZE) & (step["position"] >= found.log_start)
            # Records behind the mark were never acknowledged: a start keeps or cuts them.
            is_checked &= step["position"] < found.log_end
            step, offsets = step[is_checked], offsets[is_checked]
            found.message_count += len(step)
            say(f"checking messages: {found.message_count:,} in {found.queue_count:,} queues")
            sound = _are_sound(log, step, offsets)
            for offset in offsets[~sound].tolist():
                if damaged and damaged[-1][1] == offset:
                    damaged[-1] = (damaged[-1][0], offset + 1)
                else:
                    damaged.append((offset, offset + 1))
    return damaged


def _are_sound(
    log: _Log, entries: Entries, offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """True for entries whose record is in the log, with a sound body."""
    sound = np.zeros(len(entries), np.bool_)
    positions = entries["position"].astype(np.int64)
    sizes = entries["size"].astype(np.int64)
    bases = np.array(log.starts, np.int64)
    indices = np.searchsorted(bases, positions, side="right") - 1
    for index in np.unique(indices[indices >= 0]).tolist():
        start = int(bases[index])
        file = log.at(start)
        if file is None:
            continue
        data = file.data
        rows = np.flatnonzero((indices == index) & (positions - start + sizes <= len(data)))
        _, damaged = read_layout(data, positions[rows] - start, sizes[rows], None)
        rows = np.delete(rows, damaged)
        layout, _ = read_layout(data, positions[rows] - start, sizes[rows], None)
        is_here = layout.int64(PHYSICAL_OFFSET_AT) == positions[rows]
        is_here &= layout.int64(QUEUE_OFFSET_AT) == offsets[rows]
        checksums = (layout.int32(CRC_AT) & CRC_MASK).tolist()
        bodies = zip(layout.body_start.tolist(), layout.body_end.tolist(), strict=True)
        for row, (begin, end) in enumerate(bodies):
            is_here[row] &= crc32(data.data[begin:end], 0) & CRC_MASK == checksums[row]
        sound[rows] = is_here
    return sound


def describe(damaged: Mapping[QueueKey, Ranges]) -> list[str]:
    """One line for each queue with its damaged offsets."""
    return [
        f"{topic}/{queue}: "
        + ", ".join(
            f"{first}" if end == first + 1 else f"{first}-{end - 1}" for first, end in ranges
        )
        for (topic, queue), ranges in sorted(damaged.items())
    ]
