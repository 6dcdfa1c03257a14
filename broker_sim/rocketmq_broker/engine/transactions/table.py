"""The table of half messages: which are pending, when each is checked, where a restart reads from.

Offsets are those of the half topic. An ended half message stays in the table until the record of
its end is durable: only then may the committed offset, where a restart begins, pass it.
"""

from __future__ import annotations

import enum
import heapq
from array import array
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

PENDING_MAX: Final = 1_000_000
"""Some 300 bytes each. A producer that never ends its messages must not fill the memory."""
ENDED_KEPT: Final = 100_000
"""The number of known endings, which answer a repeated request."""
_ENDS_SPARE: Final = 1_024


class Ended(enum.Enum):
    """How a half message ended; the value stands in the record of its end."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNRESOLVED = "unresolved"
    """No producer decided it within the allowed number of checks."""


@dataclass(slots=True)
class HalfMessage:
    """A half message that is pending, or whose end is not durable."""

    offset: int
    position: int
    """The byte position of its record in the log."""
    key: str
    """The message's unique key, which is the transaction's id."""
    due_ms: int
    """The time of the next check with its producer."""
    checks: int = 0
    """The number of checks so far."""
    is_ended: bool = False


class TransactionTable:
    def __init__(self, half_next: int = 0, end_next: int = 0) -> None:
        """Start with the next offsets of the half topic and of the end topic."""
        self._by_offset: dict[int, HalfMessage] = {}
        self._by_key: dict[str, int] = {}
        self._due: list[tuple[int, int]] = []
        self._ended: OrderedDict[int, Ended] = OrderedDict()
        self._undurable: deque[tuple[int, int]] = deque()
        """The end of each end record in the log, and the offset of its half message."""
        self._end_targets = array("q")
        self._end_offsets = array("q")
        self._ends_from = 0
        self._half_next = half_next
        self._end_next = end_next
        self.pending_count = 0

    def add(self, half: HalfMessage) -> None:
        """Add a pending half message; callers add them by ascending offset."""
        self._by_offset[half.offset] = half
        self._by_key[half.key] = half.offset
        heapq.heappush(self._due, (half.due_ms, half.offset))
        self._half_next = max(self._half_next, half.offset + 1)
        self.pending_count += 1

    def get(self, offset: int) -> HalfMessage | None:
        """The pending half message at an offset."""
        half = self._by_offset.get(offset)
        return None if half is None or half.is_ended else half

    def find(self, key: str) -> HalfMessage | None:
        """The pending half message of a transaction."""
        offset = self._by_key.get(key)
        return None if offset is None else self.get(offset)

    def pending(self) -> list[HalfMessage]:
        return [half for half in self._by_offset.values() if not half.is_ended]

    def how_ended(self, offset: int) -> Ended | None:
        """How a half message ended; None if it is pending, or ended too long ago."""
        return self._ended.get(offset)

    def end(self, half: HalfMessage, ended: Ended) -> None:
        """End a half message; the caller stores the record and calls `note_record`."""
        self.remember(half.offset, ended)
        half.is_ended = True
        self._remove(half)

    def note_record(self, offset: int, *, end_offset: int, end_position: int) -> None:
        """Note the stored record of an end: the end is durable once the log is up to there."""
        self.note_read(offset, end_offset)
        self._undurable.append((end_position, offset))

    def note_read(self, offset: int, end_offset: int) -> None:
        """Note a record of the end topic that ends this half message."""
        self._end_targets.append(offset)
        self._end_offsets.append(end_offset)
        self._end_next = max(self._end_next, end_offset + 1)

    def remember(self, offset: int, ended: Ended) -> None:
        self._ended[offset] = ended
        self._ended.move_to_end(offset)
        if len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)

    def forget(self, half: HalfMessage) -> None:
        """Drop a half message whose record expired: it can be neither ended nor checked."""
        self._by_offset.pop(half.offset, None)
        self._remove(half)

    def _remove(self, half: HalfMessage) -> None:
        self.pending_count -= 1
        if self._by_key.get(half.key) == half.offset:
            del self._by_key[half.key]

    def take_due(self, now_ms: int, count_max: int) -> list[HalfMessage]:
        """The half messages due for a check; the caller ends or postpones each."""
        taken: list[HalfMessage] = []
        while self._due and self._due[0][0] <= now_ms and len(taken) < count_max:
            due_ms, offset = heapq.heappop(self._due)
            half = self.get(offset)
            if half is not None and half.due_ms == due_ms:
                taken.append(half)
        return taken

    def postpone(self, half: HalfMessage, due_ms: int) -> None:
        half.due_ms = due_ms
        heapq.heappush(self._due, (due_ms, half.offset))

    def restart_offsets(self, durable_end: int) -> tuple[int, int]:
        """The offsets where a restart begins to read: in the half topic and in the end topic."""
        while self._undurable and self._undurable[0][0] <= durable_end:
            self._by_offset.pop(self._undurable.popleft()[1], None)
        half_start = next(iter(self._by_offset), self._half_next)
        at, count = self._ends_from, len(self._end_targets)
        while at < count and self._end_targets[at] < half_start:
            at += 1
        end_start = self._end_offsets[at] if at < count else self._end_next
        self._ends_from = at
        if at > max(_ENDS_SPARE, count // 2):
            del self._end_targets[:at]
            del self._end_offsets[:at]
            self._ends_from = 0
        return half_start, end_start
