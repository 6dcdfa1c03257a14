"""Which offsets of which queues have no message once the damage is taken out of the log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from rocketmq_arrow.decode.layout import read_layout
from rocketmq_broker.storage.log.blank_records import BLANK_SIZE_MIN
from rocketmq_broker.storage.log.durable_mark import Mark
from rocketmq_broker.storage.log.scan import Bytes, QueueRows, chain, columns_of
from rocketmq_broker.storage.queues.lost_messages import Hole, Holes, QueueKey
from rocketmq_broker.storage.repair.listed_messages import Listed, ListedMessages
from rocketmq_broker.storage.repair.log_files import LogFiles
from rocketmq_broker.storage.repair.repair_plan import DamagedRange

_ROWS_PER_CHUNK: Final = 16_384


@dataclass(slots=True)
class _Kept:
    """One queue, by the records that are left."""

    first: int
    first_position: int
    next: int
    position: int
    """Of its last record."""
    gaps: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Offsets `[start, end)` between records at two log positions."""


class QueueGaps:
    """Reads what is left of the log, file after file."""

    def __init__(
        self,
        log: LogFiles,
        mark: Mark,
        dead_before: Mapping[str, int],
        damaged_ranges: Sequence[DamagedRange],
        holes: Holes,
    ) -> None:
        self.newest_ms = 0
        self.unattributed_size = 0
        self._log, self._mark, self._dead_before = log, mark, dead_before
        self._stretches = list(damaged_ranges)
        self._old_holes = holes.living(mark.log_start, dead_before)
        self._kept: dict[QueueKey, _Kept] = {}
        self._times: dict[int, int] = {}
        self._oldest_ms = 0

    def read(self, base: int) -> None:
        """Take in one file."""
        data = self._log.data(base)
        limit = min(self._log.segment_size, self._mark.end - base)
        at = 0
        for stretch in [s for s in self._stretches if base <= s.position < base + limit]:
            if data is not None:
                self._read_piece(data[: stretch.position - base], base, at)
            self._times[stretch.position] = self.newest_ms
            at = stretch.end - base
        if data is not None:
            self._read_piece(data[:limit], base, at)

    def timed(self) -> list[DamagedRange]:
        """The stretches with the time of what stands before them, or else behind."""
        return [
            replace(each, store_ms=self._times[each.position] or self._oldest_ms)
            for each in self._stretches
        ]

    def result(
        self, listed: ListedMessages, hints: Mapping[QueueKey, int]
    ) -> tuple[list[Hole], dict[QueueKey, int]]:
        """What is lost now, and each queue's next offset."""
        late = [each for each in self._stretches if each.end > listed.position]
        unknown = [each.size - listed.known_size(each.position, each.end) for each in late]
        self.unattributed_size = sum(size for size in unknown if size >= BLANK_SIZE_MIN)
        lost: list[Hole] = []
        ends: dict[QueueKey, int] = {}
        for key in sorted(
            {*self._kept, *listed.queues, *listed.bounds, *self._old_holes.served().queues}
        ):
            kept = self._kept.get(key)
            begin, end = self._bounds(key, kept, listed, hints)
            if self.unattributed_size and (kept is None or kept.position < late[-1].position):
                # Whatever was in there must not get its offset a second time.
                end += self.unattributed_size // BLANK_SIZE_MIN
            ends[key] = end
            gaps = [] if kept is None else list(kept.gaps)
            if kept is None:
                gaps.append((begin, end, -1, self._mark.end))
            else:
                gaps.insert(0, (begin, kept.first, -1, kept.first_position))
                gaps.append((kept.next, end, kept.position, self._mark.end))
            for start, stop, before, after in gaps:
                for first, last in self._without_old(key, start, stop):
                    lost.append(Hole(*key, first, last, self._blank_between(before, after)))
        return lost, ends

    def all_holes(self, lost: Sequence[Hole]) -> list[Hole]:
        """With those of earlier repairs; what they stood at may be damaged itself by now."""
        old = []
        for hole in self._old_holes:
            at = [s.position for s in self._stretches if s.position <= hole.position < s.end]
            old.append(replace(hole, position=at[0]) if at else hole)
        return sorted((*old, *lost))

    def _bounds(
        self,
        key: QueueKey,
        kept: _Kept | None,
        listed: ListedMessages,
        hints: Mapping[QueueKey, int],
    ) -> tuple[int, int]:
        queue, bounds = listed.queues.get(key, Listed(None, 0)), listed.bounds.get(key)
        holes = self._old_holes.of(*key)
        ends = [queue.end, hints.get(key, 0), kept.next if kept is not None else 0]
        ends += [bounds.end] if bounds is not None else []
        ends += [hole.end for hole in holes]
        end = max(ends)
        if queue.first is not None:
            begin = queue.first
        elif key in listed.queues or bounds is None:
            # It lists nothing that is kept: what it had has expired.
            begin = kept.first if kept is not None else max(queue.end, bounds.end if bounds else 0)
        else:
            begin = bounds.start
        begins = [begin, *(hole.start for hole in holes[:1])]
        return min(*begins, end if kept is None else kept.first), end

    def _read_piece(self, data: Bytes, base: int, at: int) -> None:
        while at < len(data):
            starts, end, is_full = chain(data, at, _ROWS_PER_CHUNK)
            if len(starts):
                layout, _ = read_layout(data, starts, np.diff(starts, append=end), None)
                scanned = columns_of(layout, base, self._dead_before)
                for part in scanned.queues:
                    self._take(part, scanned.positions[part.rows].tolist())
                self.newest_ms = max(self.newest_ms, scanned.newest_ms)
                self._oldest_ms = self._oldest_ms or scanned.newest_ms
            if is_full or not len(starts):
                return
            at = end

    def _take(self, part: QueueRows, positions: list[int]) -> None:
        key, offsets = (part.topic, part.queue_index), part.offsets
        first = int(offsets[0])
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(first, positions[0], first, positions[0])
        before = np.append(kept.next, offsets[:-1] + 1)
        for row in np.flatnonzero(offsets != before).tolist():
            place = positions[row - 1] if row else kept.position
            kept.gaps.append((int(before[row]), int(offsets[row]), place, positions[row]))
        kept.next, kept.position = int(offsets[-1]) + 1, positions[-1]

    def _without_old(self, key: QueueKey, start: int, end: int) -> Iterator[tuple[int, int]]:
        for hole in self._old_holes.of(*key):
            if start < hole.start < end:
                yield start, hole.start
            if hole.start < end:
                start = max(start, hole.end)
        if start < end:
            yield start, end

    def _blank_between(self, before: int, after: int) -> int:
        """The log position of the damage that is between two records."""
        size = self._log.segment_size
        blanks = [each.position for each in self._stretches if each.has_time(size)]
        index = bisect_right(blanks, before)
        if index < len(blanks) and blanks[index] < after:
            return blanks[index]
        return max(before, self._mark.log_start)
