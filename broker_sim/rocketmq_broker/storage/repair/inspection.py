"""Verifies a whole store without changing it, and names every message that is damaged.

The log's checksums say whether its bytes are what was written; the consume queues say which
messages are meant to be there, so damage can be named by queue and offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_arrow.decode.layout import (
    CRC_AT,
    CRC_MASK,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    read_layout,
)
from rocketmq_broker.storage.adoption.rocketmq_queues import BLANK_SIZE, queue_files
from rocketmq_broker.storage.disk.checksum import crc32
from rocketmq_broker.storage.disk.files import Files, join
from rocketmq_broker.storage.errors import DamagedStoreError, MissingFileError
from rocketmq_broker.storage.log.durable_mark import MARK_NAME, Mark, read_mark
from rocketmq_broker.storage.log.log_checksums import LogChecksum, LogChecksumFile
from rocketmq_broker.storage.log.scan import Bytes
from rocketmq_broker.storage.log.segment import LOG_DIRECTORY, segment_name
from rocketmq_broker.storage.queues.consume_queue import QUEUE_DIRECTORY, Entries
from rocketmq_broker.storage.queues.derived import DERIVED_NAME, load_derived
from rocketmq_broker.storage.queues.lite_queues import served_topics

_ENTRIES_PER_STEP: Final = 16_384

Ranges = list[tuple[int, int]]
Said = Callable[[str], None]


@dataclass(slots=True)
class Inspection:
    """What a store holds, and what is wrong with it."""

    log_start: int = 0
    log_end: int = 0
    """How far acknowledged data reaches, or the files do where nothing says it."""
    has_mark: bool = True
    has_own_files: bool = True
    """It is this broker's store, not RocketMQ's own."""
    is_rebuilding: bool = False
    """The next start makes the queues from the log, as after a repair: none was looked at."""
    message_count: int = 0
    queue_count: int = 0
    verified_size: int = 0
    """Bytes of the log that were compared with a checksum of ours."""
    problems: list[str] = field(default_factory=list)
    damaged: dict[tuple[str, int], Ranges] = field(default_factory=dict)
    """Offsets `[first, end)` of the messages that cannot be served, by queue."""

    @property
    def is_sound(self) -> bool:
        return not self.problems and not self.damaged


def inspect(files: Files, progress: Said | None = None) -> Inspection:
    """Compare everything; the caller holds the store's lock. `progress` is told how far it is."""
    say: Said = progress or (lambda _: None)
    found = Inspection()
    log = _Log(files)
    mark = _read_mark(files, found)
    if mark is not None:
        found.log_start, found.log_end = mark.log_start, mark.end
        _compare_seals(files, log, mark, found, say)
    elif log.starts:
        found.log_start, found.log_end = log.starts[0], log.end
    derived = load_derived(files)
    found.is_rebuilding = derived is not None and derived.is_rebuilding
    if found.is_rebuilding:
        # What the queues list is from before: no start reads it.
        return found
    for topic in served_topics(files):
        for name in files.names(join(QUEUE_DIRECTORY, topic)):
            if name.isdecimal():
                found.queue_count += 1
                directory = join(QUEUE_DIRECTORY, topic, name)
                damaged = _inspect_queue(files, directory, log, found, say)
                if damaged:
                    found.damaged[topic, int(name)] = damaged
    return found


class _Log:
    """The log's files as they are, mapped."""

    def __init__(self, files: Files) -> None:
        self._files: dict[int, Bytes] = {}
        for name in files.names(LOG_DIRECTORY):
            if name.isdecimal():
                file = files.open(join(LOG_DIRECTORY, name))
                size = file.size()
                view = file.map(size) if size else memoryview(b"")
                self._files[int(name)] = np.frombuffer(view, np.uint8)
                file.close()
        self.starts = sorted(self._files)

    @property
    def end(self) -> int:
        return self.starts[-1] + len(self._files[self.starts[-1]])

    def at(self, position: int) -> tuple[int, Bytes] | None:
        """The file with this position, and where it begins."""
        index = int(np.searchsorted(self.starts, position, side="right")) - 1
        if index < 0:
            return None
        start = self.starts[index]
        data = self._files[start]
        return (start, data) if position < start + len(data) else None


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


def _compare_seals(files: Files, log: _Log, mark: Mark, found: Inspection, say: Said) -> None:
    seals: list[LogChecksum] = []
    try:
        seal_file = LogChecksumFile(files, log_start=mark.log_start, anchor=mark.anchor)
        seal_file.close()
        seals = [seal for seal in seal_file.seals if seal.start >= mark.log_start]
    except (DamagedStoreError, MissingFileError) as error:
        found.problems.append(f"{error.file} byte={error.position}: {error.reason}")
    if mark.end > mark.anchor:
        seals.append(LogChecksum(mark.anchor, mark.end, mark.checksum))
    for seal in seals:
        checksum, position = 0, seal.start
        while position < seal.end:
            place = log.at(position)
            if place is None:
                name = segment_name(position - position % mark.segment_size)
                found.problems.append(f"{name}: acknowledged log from byte {position} is missing")
                break
            start, data = place
            piece = data[position - start : seal.end - start]
            checksum = crc32(piece.data, checksum)
            position += len(piece)
            found.verified_size += len(piece)
            say(f"comparing the log: {found.verified_size * 100 // (mark.end - mark.log_start)} %")
        if position == seal.end and checksum != seal.checksum:
            found.problems.append(
                f"{LOG_DIRECTORY}: positions {seal.start} to {seal.end} are not what was written, "
                f"expected {seal.checksum:#x} and found {checksum:#x}"
            )


def _inspect_queue(files: Files, directory: str, log: _Log, found: Inspection, say: Said) -> Ranges:
    damaged: Ranges = []
    for first, entries in queue_files(files, directory):
        unused = np.flatnonzero(entries["size"] <= 0)
        used = entries[: int(unused[0])] if len(unused) else entries
        for begin in range(0, len(used), _ENTRIES_PER_STEP):
            step = used[begin : begin + _ENTRIES_PER_STEP]
            offsets = first + begin + np.arange(len(step))
            is_meant = (step["size"] != BLANK_SIZE) & (step["position"] >= found.log_start)
            # What lies behind the mark was never acknowledged: a start keeps or cuts it.
            is_meant &= step["position"] < found.log_end
            step, offsets = step[is_meant], offsets[is_meant]
            found.message_count += len(step)
            say(f"looking at messages: {found.message_count:,} in {found.queue_count:,} queues")
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
    """Which entries have their record, with the body that its checksum speaks of."""
    sound = np.zeros(len(entries), np.bool_)
    positions = entries["position"].astype(np.int64)
    sizes = entries["size"].astype(np.int64)
    bases = np.array(log.starts, np.int64)
    indices = np.searchsorted(bases, positions, side="right") - 1
    for index in np.unique(indices[indices >= 0]).tolist():
        start = int(bases[index])
        place = log.at(start)
        if place is None:
            continue
        data = place[1]
        rows = np.flatnonzero((indices == index) & (positions - start + sizes <= len(data)))
        _, damaged = read_layout(data, positions[rows] - start, sizes[rows], None)
        rows = np.delete(rows, damaged)
        layout, _ = read_layout(data, positions[rows] - start, sizes[rows], None)
        is_here = layout.int64(PHYSICAL_OFFSET_AT) == positions[rows]
        is_here &= layout.int64(QUEUE_OFFSET_AT) == offsets[rows]
        checksums = (layout.int32(CRC_AT) & CRC_MASK).tolist()
        view = data.data
        for place_in, (begin, end) in enumerate(
            zip(layout.body_start.tolist(), layout.body_end.tolist(), strict=True)
        ):
            is_here[place_in] &= crc32(view[begin:end], 0) & CRC_MASK == checksums[place_in]
        sound[rows] = is_here
    return sound


def describe(damaged: Mapping[tuple[str, int], Ranges]) -> list[str]:
    """One line a queue: its damaged offsets."""
    return [
        f"{topic}/{queue}: "
        + ", ".join(
            f"{first}" if end == first + 1 else f"{first}-{end - 1}" for first, end in ranges
        )
        for (topic, queue), ranges in sorted(damaged.items())
    ]
