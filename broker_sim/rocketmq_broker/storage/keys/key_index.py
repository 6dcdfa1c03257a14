"""The key index: records of the log -> hashes of `topic#key` -> log positions, in RocketMQ's files.

    header  i64 begin_ms, end_ms, begin_position, end_position   i32 used slots, next number
    slots   i32 each: number of the newest entry whose hash belongs to the slot, 0 for none
    entries i32 hash  i64 position  i32 seconds since begin_ms  i32 number of the next older entry

Entries are numbered from 1. The slots of the newest file are kept in memory, and rebuilt from its
entries at the start. So every write appends, and a crash cannot leave half a chain.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, replace
from datetime import datetime, timezone
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_arrow.decode.layout import STORE_MS_AT, Layout, read_layout
from rocketmq_arrow.encode.key_hashes import index_value
from rocketmq_arrow.encode.key_hashes import key_entries as entries_of_block
from rocketmq_arrow.encode.record_block import RecordBlock
from rocketmq_arrow.kernels.gather import Bytes, Positions
from rocketmq_broker.storage.disk.files import Files, join
from rocketmq_broker.storage.errors import MissingFileError
from rocketmq_broker.storage.log.scan import ROWS_PER_CHUNK, topics_of
from rocketmq_broker.storage.queues.consume_queue import OpenFiles
from rocketmq_broker.storage.queues.derived import IndexFileState
from rocketmq_wire.hashes import java_hash

INDEX_DIRECTORY: Final = "index"
ENTRY: Final = np.dtype(
    [("hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
HEADER: Final = struct.Struct(">qqqqii")
_ENTRY: Final = struct.Struct(">iqii")
_SLOT: Final = struct.Struct(">i")
_SECONDS_MAX: Final = 2**31 - 1
_HOPS_MAX: Final = 100_000
"""Most entries of one slot that a query follows, so that it ends on a damaged file."""

Hashes = npt.NDArray[np.int32]


class KeyEntries(NamedTuple):
    """Columns of index entries, in the order of the records."""

    hashes: Hashes
    positions: Positions
    """Starts of the records in the data."""
    store_ms: Positions


def index_hash(topic: str, key: str) -> int:
    """The hash of a key in the index files."""
    return index_value(java_hash(f"{topic}#{key}"))


def key_entries(data: Bytes, starts: Positions, sizes: Positions) -> KeyEntries:
    """The entries of all keys of the records."""
    parts = []
    for first in range(0, len(starts), ROWS_PER_CHUNK):
        rows = slice(first, first + ROWS_PER_CHUNK)
        layout, _ = read_layout(data, starts[rows], sizes[rows], None)
        parts.append(_of_layout(layout))
    if not parts:
        nothing = np.empty(0, np.int64)
        return KeyEntries(nothing.astype(np.int32), nothing, nothing)
    return KeyEntries(*map(np.concatenate, zip(*parts, strict=True)))


def _of_layout(layout: Layout) -> KeyEntries:
    topics, codes = topics_of(layout)
    hashes, records = [], []
    for code, topic in enumerate(topics):
        rows = np.flatnonzero(codes == code)
        block = RecordBlock(
            layout.data,
            layout.starts[rows],
            layout.sizes[rows].astype(np.int32),
            np.empty(0, np.int64),
            topic,
            layout.text_start[rows],
        )
        found, indices = entries_of_block(block)
        hashes.append(found)
        records.append(rows[indices])
    all_hashes, all_records = np.concatenate(hashes), np.concatenate(records)
    if len(topics) > 1:
        order = np.argsort(all_records, kind="stable")
        all_hashes, all_records = all_hashes[order], all_records[order]
    store_ms = layout.int64(STORE_MS_AT)
    return KeyEntries(all_hashes, layout.starts[all_records], store_ms[all_records])


class KeyIndex:
    """All files of the index, oldest first. Its caller serialises access."""

    def __init__(self, files: Files, open_files: OpenFiles, *, slots: int, entries: int) -> None:
        self.slot_count = slots
        self.entry_count = entries
        self.files: list[IndexFileState] = []
        self._files = files
        self._open_files = open_files
        self._slots = np.zeros(slots, np.int32)

    def load(self, states: tuple[IndexFileState, ...]) -> bool:
        """Use a checkpoint's files; False, and an empty index, if one is missing."""
        known = {state.name for state in states}
        for name in self._files.names(INDEX_DIRECTORY):
            if name not in known:
                self._files.unlink(join(INDEX_DIRECTORY, name))
        try:
            for state in states:
                self._open_files.pread(join(INDEX_DIRECTORY, state.name), 1, 0)
            if states:
                newest = states[-1]
                size = (newest.count - 1) * ENTRY.itemsize
                data = self._open_files.pread(
                    join(INDEX_DIRECTORY, newest.name), size, self._entry_at(1)
                )
                if len(data) != size:
                    return self._reset()
                hashes = np.frombuffer(data, ENTRY)["hash"].astype(np.int32)
                # Several entries may have one slot: the last assignment, of the newest one, stays.
                self._slots[hashes % self.slot_count] = np.arange(1, newest.count, dtype=np.int32)
        except MissingFileError:
            return self._reset()
        self.files = list(states)
        return True

    def add(self, entries: KeyEntries) -> None:
        """Add entries in the order of the log; hashes are not negative."""
        hashes, positions, store_ms = entries
        while len(hashes):
            if not self.files or self.files[-1].count >= self.entry_count:
                self._begin_file(int(positions[0]), int(store_ms[0]))
            state = self.files[-1]
            count = min(len(hashes), self.entry_count - state.count)
            self._append(state, hashes[:count], positions[:count], store_ms[:count])
            hashes, positions, store_ms = hashes[count:], positions[count:], store_ms[count:]

    def query(self, key_hash: int, *, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Log positions of records that have a key of this hash, the newest first."""
        found: list[int] = []
        for state in reversed(self.files):
            if len(found) >= count_max or state.end_ms < begin_ms:
                break
            if state.begin_ms <= end_ms:
                found += self._query_file(state, key_hash, count_max - len(found), begin_ms, end_ms)
        return found

    def forget_before(self, position: int) -> list[str]:
        """Forget files whose records are all before a log position; returns their names."""
        names = []
        while len(self.files) > 1 and self.files[0].end_position < position:
            name = join(INDEX_DIRECTORY, self.files.pop(0).name)
            self._open_files.close_file(name)
            names.append(name)
        return names

    def flush(self) -> None:
        """Write the newest file's header and slots, so that RocketMQ can use the file."""
        if self.files:
            self._write_head(self.files[-1])

    def _append(
        self, state: IndexFileState, hashes: Hashes, positions: Positions, store_ms: Positions
    ) -> None:
        seconds = np.clip((store_ms - state.begin_ms) // 1000, 0, _SECONDS_MAX)
        entries = np.empty(len(hashes), ENTRY)
        entries["hash"] = hashes
        entries["position"] = positions
        entries["seconds"] = seconds
        entries["previous"] = self._link(hashes % self.slot_count, state.count)
        name = join(INDEX_DIRECTORY, state.name)
        data = entries.view(np.uint8).data
        self._open_files.pwrite(
            name, data, self._entry_at(state.count), file_size=self._entry_at(self.entry_count)
        )
        self.files[-1] = replace(
            state,
            end_ms=int(store_ms[-1]),
            end_position=int(positions[-1]),
            count=state.count + len(hashes),
        )

    def _link(self, slots: Hashes, first: int) -> Hashes:
        """Put new entries at the head of their slots' chains; returns their next older entries."""
        numbers = np.arange(first, first + len(slots), dtype=np.int32)
        previous = self._slots[slots]
        self._slots[slots] = numbers
        # Several new entries may have one slot: so far all of them point to its old head.
        covered = np.flatnonzero(self._slots[slots] != numbers)
        if len(covered):
            covered = covered[np.argsort(slots[covered], kind="stable")]
            is_last = np.append(slots[covered][1:] != slots[covered][:-1], True)
            later = np.append(covered[1:], 0)
            later[is_last] = self._slots[slots[covered[is_last]]] - first
            previous[later] = numbers[covered]
        return previous

    def _query_file(
        self, state: IndexFileState, key_hash: int, count_max: int, begin_ms: int, end_ms: int
    ) -> list[int]:
        name = join(INDEX_DIRECTORY, state.name)
        slot = key_hash % self.slot_count
        if state is self.files[-1]:
            number = int(self._slots[slot])
        else:
            data = self._open_files.pread(name, _SLOT.size, HEADER.size + _SLOT.size * slot)
            number = _SLOT.unpack(data)[0]
        found: list[int] = []
        for _ in range(_HOPS_MAX):
            if not 0 < number < state.count or len(found) >= count_max:
                break
            data = self._open_files.pread(name, _ENTRY.size, self._entry_at(number))
            entry_hash, position, seconds, number = _ENTRY.unpack(data)
            entry_ms = state.begin_ms + seconds * 1000
            # An entry has only the second, so its message may be up to a second newer.
            if entry_hash == key_hash and begin_ms - 1000 < entry_ms <= end_ms:
                found.append(position)
        return found

    def _begin_file(self, position: int, store_ms: int) -> None:
        name = ""
        if self.files:
            self._write_head(self.files[-1])
            name = self.files[-1].name
        self._slots = np.zeros(self.slot_count, np.int32)
        begin_ms = store_ms
        # Names are times and sort by age, so two files of one millisecond need two names.
        while _file_name(begin_ms) <= name:
            begin_ms += 1
        self.files.append(
            IndexFileState(_file_name(begin_ms), store_ms, store_ms, position, position, count=1)
        )

    def _write_head(self, state: IndexFileState) -> None:
        _, *span, count = astuple(state)
        header = HEADER.pack(*span, int(np.count_nonzero(self._slots)), count)
        name = join(INDEX_DIRECTORY, state.name)
        data = header + self._slots.astype(">i4").tobytes()
        self._open_files.pwrite(
            name, memoryview(data), 0, file_size=self._entry_at(self.entry_count)
        )

    def _reset(self) -> bool:
        for name in self._files.names(INDEX_DIRECTORY):
            self._open_files.close_file(join(INDEX_DIRECTORY, name))
            self._files.unlink(join(INDEX_DIRECTORY, name))
        self.files = []
        self._slots = np.zeros(self.slot_count, np.int32)
        return False

    def _entry_at(self, number: int) -> int:
        return HEADER.size + _SLOT.size * self.slot_count + _ENTRY.size * number


def _file_name(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms // 1000, tz=timezone.utc)
    return f"{moment:%Y%m%d%H%M%S}{time_ms % 1000:03d}"
