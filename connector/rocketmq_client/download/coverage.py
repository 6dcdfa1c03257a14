"""Which offsets of a range have arrived, in what pieces, and which come next in order."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rocketmq_client.loss import Loss, lost_range
from rocketmq_wire.model import Buffer

# Many small answers (32 messages from a real broker) are joined up to this size: decoding works on
# whole buffers and costs the same for 32 records as for hundreds.
GATHER_BYTES: Final = 1024 * 1024
# A body of this size becomes a chunk as it was received, without a copy.
_WHOLE_BYTES: Final = 384 * 1024


@dataclass(slots=True, order=True)
class Piece:
    """Offsets `[start, end)` that need no more pulls."""

    start: int
    end: int
    bodies: tuple[Buffer, ...] = field(compare=False)
    """Records, back to back."""
    size: int = field(compare=False)
    """The bytes of all bodies."""
    sizes: Buffer | None = field(compare=False, default=None)
    message_count: int = field(compare=False, default=0)
    may_follow: bool = field(compare=False, default=True)
    """True if its records begin at `start`: joined to the piece before, none is there twice."""
    may_lead: bool = field(compare=False, default=True)
    """True if its records end at `end`."""
    loss: Loss | None = field(compare=False, default=None)

    @property
    def is_whole(self) -> bool:
        """True if it becomes a chunk as it is, without waiting for more to join it."""
        is_large = self.size >= _WHOLE_BYTES and len(self.bodies) == 1
        return is_large or self.sizes is not None or self.loss is not None

    @property
    def body(self) -> Buffer:
        return self.bodies[0] if len(self.bodies) == 1 else b"".join(self.bodies)


class Coverage:
    """The pieces of `[start, end)`: a run without a gap from `taken` to `edge`, islands behind."""

    __slots__ = ("_islands", "_ready", "edge", "end", "held_bytes", "held_messages", "taken")

    def __init__(self, start: int, end: int) -> None:
        self.taken = start
        """The offset below which everything was taken."""
        self.edge = start
        """The offset below which everything has arrived."""
        self.end = end
        self.held_messages = 0
        self.held_bytes = 0
        self._ready: deque[Piece] = deque()
        self._islands: list[Piece] = []

    @property
    def head(self) -> Piece | None:
        """The next piece, if it is here."""
        return self._ready[0] if self._ready else None

    def islands(self) -> list[tuple[int, int]]:
        """The offsets that arrived behind holes."""
        return [(piece.start, piece.end) for piece in self._islands]

    def missing(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of `[start, end)` that have not arrived."""
        end = min(end, self.end)
        cursor = max(start, self.edge)
        for island in self._islands:
            if island.start >= end:
                break
            if island.start > cursor:
                yield cursor, island.start
            cursor = max(cursor, island.end)
        if cursor < end:
            yield cursor, end

    def is_missing(self, start: int, end: int) -> bool:
        """True if any part of `[start, end)` has not arrived."""
        return next(self.missing(start, end), None) is not None

    def cover(
        self,
        start: int,
        end: int,
        bodies: tuple[Buffer, ...],
        sizes: Buffer | None,
        message_count: int,
    ) -> bool:
        """Take in the new parts of `[start, end)`; False if there are none."""
        size = sum(map(len, bodies))
        islands = self._islands
        if self.edge == start < end <= self.end and (not islands or islands[0].start >= end):
            # Most answers come in the order of their pulls.
            count = min(message_count, end - start)
            self._insert(Piece(start, end, bodies, size, sizes, count))
            return True
        gaps = list(self.missing(start, end))
        for gap_start, gap_end in gaps:
            count = min(message_count, gap_end - gap_start)
            piece = Piece(gap_start, gap_end, bodies, size, sizes, count)
            piece.may_follow = gap_start == start
            piece.may_lead = gap_end == end
            self._insert(piece)
        return bool(gaps)

    def lose(self, loss: Loss) -> int | None:
        """Mark the missing parts of `loss` as gone; return the start of the first one."""
        gaps = list(self.missing(loss.start, loss.end))
        for start, end in gaps:
            part = lost_range(loss.reason, loss.queue, start, end, loss.bounds)
            self._insert(Piece(start, end, (), 0, loss=part))
        return gaps[0][0] if gaps else None

    def pop(self) -> Piece:
        """Take the next piece."""
        piece = self._ready.popleft()
        self.held_messages -= piece.message_count
        self.held_bytes -= piece.size
        self.taken = piece.end
        return piece

    def pop_gathered(self) -> Piece:
        """Take the next piece, joined with the small ones that follow it."""
        head = last = self.pop()
        bodies, size = [*head.bodies], head.size
        while self._ready and size < GATHER_BYTES:
            piece = self._ready[0]
            if piece.is_whole or not (last.may_lead and piece.may_follow):
                break
            last = self.pop()
            bodies += last.bodies
            size += last.size
        if last is head:
            return head
        return Piece(head.start, last.end, tuple(bodies), size)

    def pop_loss(self) -> Loss:
        """Take the next loss, joined with those that follow for the same reason."""
        first = self.pop().loss
        assert first is not None
        end = first.end
        while self._ready:
            loss = self._ready[0].loss
            if loss is None or loss.reason is not first.reason:
                break
            end = self.pop().end
        return lost_range(first.reason, first.queue, first.start, end, first.bounds)

    def _insert(self, piece: Piece) -> None:
        self.held_messages += piece.message_count
        self.held_bytes += piece.size
        if piece.start > self.edge:
            insort(self._islands, piece)
            return
        self._ready.append(piece)
        self.edge = piece.end
        while self._islands and self._islands[0].start == self.edge:
            island = self._islands.pop(0)
            self._ready.append(island)
            self.edge = island.end
