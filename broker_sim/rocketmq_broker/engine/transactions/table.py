"""Which half messages are not ended, when each is asked about, and how far all are settled.

Offsets are those of the half topic. What is ended stays here until the record that says so is
durable: only then may the progress that a restart begins at go beyond it.
"""

from __future__ import annotations

import enum
import heapq
from array import array
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

PENDING_MAX: Final = 1_000_000
"""Some 300 bytes each. Whoever never ends what it sends must not take the broker's memory."""
ENDED_KEPT: Final = 100_000
"""Of so many it is known how they ended, so that a request that is repeated has its answer."""
_ENDS_SPARE: Final = 1_024


class Ended(enum.Enum):
    """How a half message ended; the value is what its end's record says."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNRESOLVED = "unresolved"
    """Nobody said what became of it, though asked often enough."""


@dataclass(slots=True)
class Half:
    """A half message that is not ended, or whose end is not durable."""

    offset: int
    position: int
    """Where its record begins in the log."""
    key: str
    """Its unique key, which is the transaction's id."""
    due_ms: int
    """When its producer is to be asked."""
    checks: int = 0
    """How often it was."""
    is_ended: bool = False


class TransactionTable:
    """What waits for its end, in the order of the half topic."""

    def __init__(self) -> None:
        self._halves: dict[int, Half] = {}
        self._by_key: dict[str, int] = {}
        self._due: list[tuple[int, int]] = []
        self._ended: OrderedDict[int, Ended] = OrderedDict()
        self._undurable: deque[tuple[int, int]] = deque()
        """Log positions behind the records of ends, and which halves they end."""
        self._end_halves = array("q")
        self._end_offsets = array("q")
        self._ends_from = 0
        self._half_next = self._end_next = 0
        self.pending_count = 0

    def begin(self, half_next: int, end_next: int) -> None:
        """Where the half topic and that of the ends go on."""
        self._half_next, self._end_next = half_next, end_next

    def add(self, half: Half) -> None:
        """A half message that is not ended; they come in the order of their offsets."""
        self._halves[half.offset] = half
        self._by_key[half.key] = half.offset
        heapq.heappush(self._due, (half.due_ms, half.offset))
        self._half_next = max(self._half_next, half.offset + 1)
        self.pending_count += 1

    def get(self, offset: int) -> Half | None:
        """The half message at an offset, if it is not ended."""
        half = self._halves.get(offset)
        return None if half is None or half.is_ended else half

    def find(self, key: str) -> Half | None:
        """The half message of a transaction, if it is not ended."""
        offset = self._by_key.get(key)
        return None if offset is None else self.get(offset)

    def pending(self) -> list[Half]:
        """All that are not ended."""
        return [half for half in self._halves.values() if not half.is_ended]

    def how_ended(self, offset: int) -> Ended | None:
        """How a half message ended; None if it did not, or too long ago."""
        return self._ended.get(offset)

    def end(self, half: Half, ended: Ended) -> None:
        """It is ended from now on; `note_record` is to follow."""
        self.remember(half.offset, ended)
        half.is_ended = True
        self._leave(half)

    def note_record(self, offset: int, *, end_offset: int, end_position: int) -> None:
        """The record that says so was stored: it is durable when the log is so up to there."""
        self.note_read(offset, end_offset)
        self._undurable.append((end_position, offset))

    def note_read(self, offset: int, end_offset: int) -> None:
        """A record of the topic of ends, found at a start, is about this half message."""
        self._end_halves.append(offset)
        self._end_offsets.append(end_offset)
        self._end_next = max(self._end_next, end_offset + 1)

    def remember(self, offset: int, ended: Ended) -> None:
        """This is how it ended."""
        self._ended[offset] = ended
        self._ended.move_to_end(offset)
        if len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)

    def forget(self, half: Half) -> None:
        """Its record is gone: it can neither be ended nor asked about."""
        self._halves.pop(half.offset, None)
        self._leave(half)

    def _leave(self, half: Half) -> None:
        self.pending_count -= 1
        if self._by_key.get(half.key) == half.offset:
            del self._by_key[half.key]

    def take_due(self, now_ms: int, count_max: int) -> list[Half]:
        """Those to be asked about now; each is to be ended or postponed."""
        taken: list[Half] = []
        while self._due and self._due[0][0] <= now_ms and len(taken) < count_max:
            due_ms, offset = heapq.heappop(self._due)
            half = self.get(offset)
            if half is not None and half.due_ms == due_ms:
                taken.append(half)
        return taken

    def postpone(self, half: Half, due_ms: int) -> None:
        """It is to be asked about again."""
        half.due_ms = due_ms
        heapq.heappush(self._due, (due_ms, half.offset))

    def settle(self, durable_end: int) -> tuple[int, int]:
        """Where a restart has to begin: in the half topic, and in that of the ends."""
        while self._undurable and self._undurable[0][0] <= durable_end:
            self._halves.pop(self._undurable.popleft()[1], None)
        half_start = next(iter(self._halves), self._half_next)
        at, count = self._ends_from, len(self._end_halves)
        while at < count and self._end_halves[at] < half_start:
            at += 1
        end_start = self._end_offsets[at] if at < count else self._end_next
        self._ends_from = at
        if at > max(_ENDS_SPARE, count // 2):
            del self._end_halves[:at]
            del self._end_offsets[:at]
            self._ends_from = 0
        return half_start, end_start
