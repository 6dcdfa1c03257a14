"""Verifies a whole store without changing it, and names every damaged message.

The log's checksums show whether its bytes are what was written. The consume queues list the
messages that must be there, so damage is named by queue and offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_arrow.decode.layout import (
    QUEUE_OFFSET_AT,
    read_layout,
)
from rocketmq_broker.storage.disk.config_files import Configs
from rocketmq_broker.storage.disk.files import Files, crc32, read_file
from rocketmq_broker.storage.errors import ConfigFileError, DamagedStoreError
from rocketmq_broker.storage.log.commit_log import LOG_DIRECTORY, segment_name
from rocketmq_broker.storage.log.durability import (
    MARK_NAME,
    LogChecksum,
    Mark,
    read_log_checksums,
    read_mark,
    require_checksums,
)
from rocketmq_broker.storage.log.scan import (
    ROWS_PER_CHUNK,
    are_sound,
    chain_of,
    columns_of,
    whole_prefix,
)
from rocketmq_broker.storage.queues.consume_queue import (
    BLANK_ENTRY_SIZE,
    Entries,
    OpenFiles,
    QueueIndex,
    QueueKey,
    read_entries,
    written,
)
from rocketmq_broker.storage.queues.derived import DERIVED_NAME, Derived, load_derived
from rocketmq_broker.storage.queues.lite_queues import queue_directories
from rocketmq_broker.storage.repair.log_files import LogFiles, Say, silent
from rocketmq_wire.model import Bounds

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
    queues: set[QueueKey] = field(default_factory=set)
    verified_size: int = 0
    """Bytes of the log that were compared with their checksums."""
    problems: list[str] = field(default_factory=list)
    damaged_queues: bool = False
    """True if the entries of a queue are not what was written; the log has its messages."""
    damaged: dict[QueueKey, Ranges] = field(default_factory=dict)
    """Offsets `[start, end)` of the messages that cannot be served, by queue."""

    @property
    def queue_count(self) -> int:
        return len(self.queues)

    @property
    def is_sound(self) -> bool:
        return not self.problems and not self.damaged


def inspect(files: Files, say: Say = silent) -> Inspection:
    """Verify the whole store. The caller holds its lock."""
    found = Inspection()
    mark = _read_mark(files, found)
    log = LogFiles(files, LogFiles.size_of(files) if mark is None else mark.segment_size)
    if mark is not None:
        found.log_start, found.log_end = mark.log_start, mark.end
        _compare_checksums(files, log, mark, found, say)
    elif log.found:
        found.log_start, found.log_end = log.found[0], log.end
    derived = load_derived(files)
    found.is_rebuilding = derived is not None and derived.is_rebuilding
    if found.is_rebuilding:
        # The queues' files are older than the log, and no start reads them.
        return found
    if mark is not None:
        _inspect_own_queues(files, derived, log, mark, found, say)
        return found
    for key, directory in queue_directories(files):
        found.queues.add(key)
        _inspect_queue(files, key, directory, log, found, say)
    return found


def _inspect_own_queues(
    files: Files, derived: Derived | None, log: LogFiles, mark: Mark, found: Inspection, say: Say
) -> None:
    """Inspect what a start uses: queues up to the last checkpoint, and then the log."""
    try:
        dead_before = Configs(files).dead_before
    except ConfigFileError:
        # Damage of this file is found beside the inspection.
        dead_before = {}
    if derived is None or derived.position > mark.end:
        derived = Derived(mark.log_start)
    listed = derived.living(dead_before)
    for key, directory in queue_directories(files):
        if key in listed:
            _compare_entries(files, key, derived, mark.queue_file_entries, found)
        # If the log is damaged, all entries help to name the messages.
        end = None if found.problems else listed.get(key, Bounds(0, 0)).end
        _inspect_queue(files, key, directory, log, found, say, end)
    found.queues.update(listed)
    if found.damaged_queues:
        # The start reads the whole log.
        found.message_count = 0
        derived = Derived(mark.log_start)
    _count_from(max(derived.position, mark.log_start), log, mark, dead_before, found)


def _count_from(
    position: int, log: LogFiles, mark: Mark, dead_before: Mapping[str, int], found: Inspection
) -> None:
    """Count the messages from a log position on, as far as a start reads them."""
    size = log.segment_size
    while True:
        base = position - position % size
        data = log.data(base) if position < mark.end else log.tail(position)
        if data is None:
            return
        if position < mark.end:
            data = data[position - base : mark.end - base]
            chain = chain_of(data, 0, ROWS_PER_CHUNK)
            layout, _ = read_layout(data, chain.starts, chain.sizes, None)
        else:
            chain, layout = whole_prefix(data, position)
        for part in columns_of(layout, position, dead_before).queues:
            found.queues.add((part.topic, part.queue_index))
            found.message_count += len(part.offsets)
        if len(chain.starts):
            position += chain.end
        elif chain.has_filler:
            position = base + size
        else:
            return


def _read_mark(files: Files, found: Inspection) -> Mark | None:
    names = files.names("")
    found.has_mark = MARK_NAME in names
    found.has_own_files = found.has_mark or DERIVED_NAME in names
    mark = read_mark(files)
    if found.has_own_files and mark is None:
        state = "unreadable" if found.has_mark else "missing"
        found.problems.append(f"{MARK_NAME}: the durable mark is {state}")
    return mark


def _compare_checksums(
    files: Files, log: LogFiles, mark: Mark, found: Inspection, say: Say
) -> None:
    checksums = read_log_checksums(files, anchor=mark.anchor)
    try:
        require_checksums(checksums, log_start=mark.log_start, anchor=mark.anchor)
    except DamagedStoreError as error:
        found.problems.append(f"{error.file} byte={error.position}: {error.reason}")
    if mark.end > mark.anchor:
        checksums.append(LogChecksum(mark.anchor, mark.end, mark.checksum))
    for checksum in [each for each in checksums if each.start >= mark.log_start]:
        crc = log.crc(checksum.start, checksum.end)
        # A start completes a file that lacks only zeros.
        missing = log.missing_from(checksum.start, checksum.end)
        if missing is not None and crc != checksum.crc:
            name = segment_name(missing - missing % mark.segment_size)
            found.problems.append(f"{name}: acknowledged log from byte {missing} is missing")
            continue
        found.verified_size += checksum.end - checksum.start
        say(f"comparing the log: {found.verified_size * 100 // (mark.end - mark.log_start)} %")
        if crc != checksum.crc:
            found.problems.append(
                f"{LOG_DIRECTORY}: positions {checksum.start} to {checksum.end} are not what was "
                f"written, expected {checksum.crc:#x} and found {crc:#x}"
            )


def _compare_entries(
    files: Files, key: QueueKey, derived: Derived, entries_per_file: int, found: Inspection
) -> None:
    """Compare the files of one queue with the checksums of the last checkpoint."""
    queue = QueueIndex(OpenFiles(files), *key, entries_per_file)
    bounds = derived.bounds.get(key, Bounds(0, 0))
    queue.start, queue.end = bounds.start, bounds.end
    queue.expect(derived.checksums.get(key, ()))
    for name, (size, expected) in queue.unverified.items():
        crc = crc32((read_file(files, name) or b"")[:size], 0)
        if crc != expected:
            found.damaged_queues = True
            found.problems.append(
                f"{name}: the entries of the first {size} bytes are not what was written, "
                f"expected {expected:#x} and found {crc:#x}"
            )


def _inspect_queue(
    files: Files,
    key: QueueKey,
    directory: str,
    log: LogFiles,
    found: Inspection,
    say: Say,
    end: int | None = None,
) -> None:
    """Note the damaged offsets of one queue; no start reads its entries from `end` on."""
    damaged: Ranges = []
    for first, entries in read_entries(files, directory):
        used = written(entries)
        for begin in range(0, len(used), _ENTRIES_PER_STEP):
            step = used[begin : begin + _ENTRIES_PER_STEP]
            offsets = first + begin + np.arange(len(step))
            is_checked = (step["size"] != BLANK_ENTRY_SIZE) & (step["position"] >= found.log_start)
            # Records behind the mark were never acknowledged: a start keeps or cuts them.
            is_checked &= step["position"] < found.log_end
            if end is not None:
                is_checked &= offsets < end
            step, offsets = step[is_checked], offsets[is_checked]
            found.message_count += len(step)
            say(f"checking messages: {found.message_count:,}")
            sound = _are_sound(log, step, offsets)
            for offset in offsets[~sound].tolist():
                if damaged and damaged[-1][1] == offset:
                    damaged[-1] = (damaged[-1][0], offset + 1)
                else:
                    damaged.append((offset, offset + 1))
    if damaged:
        found.damaged[key] = damaged


def _are_sound(
    log: LogFiles, entries: Entries, offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """True for entries whose record is in the log, with a sound body."""
    sound = np.zeros(len(entries), np.bool_)
    positions = entries["position"].astype(np.int64)
    sizes = entries["size"].astype(np.int64)
    bases = positions - positions % log.segment_size
    for start in np.unique(bases).tolist():
        data = log.data(start)
        if data is None:
            continue
        # Behind the bytes on the disk, `data` has zeros, which could pass for lost properties.
        rows = np.flatnonzero((bases == start) & (positions - start + sizes <= log.size(start)))
        _, damaged = read_layout(data, positions[rows] - start, sizes[rows], None)
        rows = np.delete(rows, damaged)
        layout, _ = read_layout(data, positions[rows] - start, sizes[rows], None)
        sound[rows] = are_sound(layout, start) & (layout.int64(QUEUE_OFFSET_AT) == offsets[rows])
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
