"""The offsets that have no message once blank records replace the damage of the log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from rocketmq_arrow.decode.layout import read_layout
from rocketmq_arrow.kernels.gather import Bytes
from rocketmq_broker.storage.log.blank_records import BLANK_SIZE_MIN
from rocketmq_broker.storage.log.scan import ROWS_PER_CHUNK, QueueRows, chain_of, columns_of
from rocketmq_broker.storage.queues.consume_queue import QueueKey
from rocketmq_broker.storage.queues.lost_messages import Hole, Holes
from rocketmq_broker.storage.repair.listed_messages import ListedMessages, ListedQueue
from rocketmq_broker.storage.repair.log_files import LogFiles
from rocketmq_broker.storage.repair.repair_plan import DamagedRange
from rocketmq_wire.model import Bounds


class _Gap(NamedTuple):
    """Offsets `[start, end)` without records, and the log positions of the records around them."""

    start: int
    end: int
    before: int
    after: int


@dataclass(slots=True)
class _KeptQueue:
    """One queue, by the records that are left."""

    first: int
    first_position: int
    next: int
    last_position: int
    gaps: list[_Gap] = field(default_factory=list)


class QueueGaps:
    """Reads the sound part of the log, file after file."""

    def __init__(
        self,
        log: LogFiles,
        listed: ListedMessages,
        damage: Sequence[DamagedRange],
        holes: Holes,
    ) -> None:
        self.newest_ms = 0
        self.unattributed_size = 0
        self._log = log
        self._listed = listed
        self._mark = listed.mark
        self._dead_before = listed.dead_before
        self._damage = list(damage)
        self._old_holes = holes.living(listed.mark.log_start, listed.dead_before)
        self._kept: dict[QueueKey, _KeptQueue] = {}
        self._times: dict[int, int] = {}
        self._oldest_ms = 0

    def read(self, base: int) -> None:
        data = self._log.data(base)
        limit = min(self._log.segment_size, self._mark.end - base)
        at = 0
        for bad in [each for each in self._damage if base <= each.position < base + limit]:
            if data is not None:
                self._read_piece(data[: bad.position - base], base, at)
            self._times[bad.position] = self.newest_ms
            at = bad.end - base
        if data is not None:
            self._read_piece(data[:limit], base, at)

    def timed(self) -> list[DamagedRange]:
        """The damage with the store times of the records before it, or else behind it."""
        return [
            replace(each, store_ms=self._times[each.position] or self._oldest_ms)
            for each in self._damage
        ]

    def result(self, hints: Mapping[QueueKey, int]) -> tuple[list[Hole], dict[QueueKey, int]]:
        """The messages that are lost now, and each queue's next offset."""
        listed = self._listed
        unlisted = [each for each in self._damage if each.end > listed.position]
        unknown = [each.size - listed.known_size(each.position, each.end) for each in unlisted]
        self.unattributed_size = sum(size for size in unknown if size >= BLANK_SIZE_MIN)
        lost: list[Hole] = []
        ends: dict[QueueKey, int] = {}
        old_queues = self._old_holes.served().queues
        for key in sorted({*self._kept, *listed.queues, *listed.bounds, *old_queues}):
            kept = self._kept.get(key)
            bounds = self._bounds(key, kept, hints)
            end = bounds.end
            if self.unattributed_size and (
                kept is None or kept.last_position < unlisted[-1].position
            ):
                # The damage may have had messages of this queue: their offsets are not used again.
                end += self.unattributed_size // BLANK_SIZE_MIN
            ends[key] = end
            if kept is None:
                gaps = [_Gap(bounds.start, end, -1, self._mark.end)]
            else:
                gaps = [
                    _Gap(bounds.start, kept.first, -1, kept.first_position),
                    *kept.gaps,
                    _Gap(kept.next, end, kept.last_position, self._mark.end),
                ]
            for gap in gaps:
                for first, last in self._without_old(key, gap.start, gap.end):
                    position = self._blank_between(gap.before, gap.after)
                    lost.append(Hole(*key, first, last, position))
        return lost, ends

    def all_holes(self, lost: Sequence[Hole]) -> list[Hole]:
        """The lost messages with the holes of earlier repairs, whose blanks may be damaged now."""
        old = []
        for hole in self._old_holes:
            at = [
                each.position for each in self._damage if each.position <= hole.position < each.end
            ]
            old.append(replace(hole, position=at[0]) if at else hole)
        return sorted((*old, *lost))

    def _bounds(
        self, key: QueueKey, kept: _KeptQueue | None, hints: Mapping[QueueKey, int]
    ) -> Bounds:
        """The offsets that a queue had before the damage."""
        listed = self._listed
        queue, bounds = listed.queues.get(key, ListedQueue(None, 0)), listed.bounds.get(key)
        holes = self._old_holes.of(*key)
        ends = [queue.end, hints.get(key, 0), kept.next if kept is not None else 0]
        ends += [bounds.end] if bounds is not None else []
        ends += [hole.end for hole in holes]
        end = max(ends)
        if queue.first is not None:
            begin = queue.first
        elif key in listed.queues or bounds is None:
            # The queue lists no message that is kept: its older ones have expired.
            begin = kept.first if kept is not None else max(queue.end, bounds.end if bounds else 0)
        else:
            begin = bounds.start
        begins = [begin, *(hole.start for hole in holes[:1])]
        return Bounds(min(*begins, end if kept is None else kept.first), end)

    def _read_piece(self, data: Bytes, base: int, at: int) -> None:
        while at < len(data):
            chain = chain_of(data, at, ROWS_PER_CHUNK)
            if len(chain.starts):
                layout, _ = read_layout(data, chain.starts, chain.sizes, None)
                scanned = columns_of(layout, base, self._dead_before)
                for part in scanned.queues:
                    self._add(part, scanned.positions[part.rows].tolist())
                self.newest_ms = max(self.newest_ms, scanned.newest_ms)
                self._oldest_ms = self._oldest_ms or scanned.newest_ms
            if chain.has_filler or not len(chain.starts):
                return
            at = chain.end

    def _add(self, part: QueueRows, positions: list[int]) -> None:
        key, offsets = (part.topic, part.queue_index), part.offsets
        first = int(offsets[0])
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _KeptQueue(first, positions[0], first, positions[0])
        expected = np.append(kept.next, offsets[:-1] + 1)
        for row in np.flatnonzero(offsets != expected).tolist():
            before = positions[row - 1] if row else kept.last_position
            gap = _Gap(int(expected[row]), int(offsets[row]), before, positions[row])
            kept.gaps.append(gap)
        kept.next, kept.last_position = int(offsets[-1]) + 1, positions[-1]

    def _without_old(self, key: QueueKey, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of `[start, end)` between the holes of earlier repairs."""
        for hole in self._old_holes.of(*key):
            if start < hole.start < end:
                yield start, hole.start
            if hole.start < end:
                start = max(start, hole.end)
        if start < end:
            yield start, end

    def _blank_between(self, before: int, after: int) -> int:
        """The log position of the damage between two records."""
        size = self._log.segment_size
        blanks = [each.position for each in self._damage if each.has_time(size)]
        index = bisect_right(blanks, before)
        if index < len(blanks) and blanks[index] < after:
            return blanks[index]
        return max(before, self._mark.log_start)
