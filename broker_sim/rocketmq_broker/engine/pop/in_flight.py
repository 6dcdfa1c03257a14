"""What is lent out by pops, and how far that lets a group's progress and the revive topic go.

A loan is one pop's take of one queue. It is kept in memory; when it is not settled after a while
its checkpoint is written to the revive topic. Acknowledgements settle it, or its revival does. Two
marks follow behind, both only over what would survive a crash:

    the group's progress    over the loans of a queue, in order: settled, or checkpoint written
    a revive queue's mark   over its checkpoints, in order: settled

So a message that is not settled is always either at or behind the group's progress, or in a
checkpoint behind the mark. What is written or settled by other records counts only once those are
durable: `safe_position` says from which end of the log on.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rocketmq_wire.records.pop_checkpoints import Checkpoint, CheckpointKey

STAY_MS: Final = 3_000
"""How long loans and acknowledgements stay in memory before they are written."""


class GroupQueue(NamedTuple):
    """One group's view of one queue."""

    topic: str
    group: str
    queue_index: int


@dataclass(eq=False, slots=True)
class InFlightPop:
    """Messages of one queue that one pop lent."""

    key: CheckpointKey
    invisible_ms: int
    offsets: tuple[int, ...]
    end: int
    """Behind what the pop looked at: where the next one begins."""
    revive_queue: int
    settled: int = 0
    """Bit i: the i-th message is acknowledged, or stored anew."""
    place: int = -1
    """The checkpoint's offset in its revive queue; -1: not written."""
    safe_position: int = 0
    unwritten: int = 0
    """Bits acknowledged since the checkpoint or the last ack record was written."""
    failures: int = 0
    """How often it could not be revived."""
    is_chained: bool = False

    @property
    def is_settled(self) -> bool:
        return self.settled == (1 << len(self.offsets)) - 1

    @property
    def visible_ms(self) -> int:
        return self.key.pop_ms + self.invisible_ms

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.key, self.invisible_ms, self.offsets, self.settled)

    def offsets_of(self, bits: int) -> tuple[int, ...]:
        return tuple(offset for index, offset in enumerate(self.offsets) if bits >> index & 1)

    def bits_of(self, offsets: Iterable[int]) -> int:
        """The bits of those offsets that are lent here."""
        wanted = tuple(offsets)
        if wanted == self.offsets:
            return (1 << len(wanted)) - 1
        bits = 0
        for offset in wanted:
            if offset in self.offsets:
                bits |= 1 << self.offsets.index(offset)
        return bits

    def settle(self, bits: int, position: int = 0) -> None:
        """Settle messages; what stands for them instead ends at a log position."""
        self.settled |= bits
        self.safe_position = max(self.safe_position, position)


@dataclass(slots=True)
class _ReviveQueue:
    checkpoints: deque[InFlightPop] = field(default_factory=deque)
    """Written and not passed by the mark, in their order."""
    end: int = 0
    """Behind the last record that is known here."""


class InFlightPops:
    """Every loan that is not settled, by what makes its checkpoint."""

    def __init__(self) -> None:
        self._by_key: dict[CheckpointKey, InFlightPop] = {}
        self._chains: dict[GroupQueue, deque[InFlightPop]] = {}
        self._moved: dict[GroupQueue, None] = {}
        """Chains whose head may let progress go on."""
        self._young: deque[InFlightPop] = deque()
        self._acked: deque[tuple[int, InFlightPop]] = deque()
        self._due: list[tuple[int, int, InFlightPop]] = []
        self._numbers = itertools.count()
        self._revive_queues: dict[int, _ReviveQueue] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: CheckpointKey) -> InFlightPop | None:
        return self._by_key.get(key)

    # --- lending ------------------------------------------------------------------------------

    def next_offset(self, place: GroupQueue, progress: int) -> int:
        """Where a queue's next pop begins, for a group whose progress is there."""
        chain = self._chains.get(place)
        return max(chain[-1].end, progress) if chain else progress

    def lend(self, place: GroupQueue, loan: InFlightPop) -> None:
        """Note a loan behind those that the queue has; one without messages only moves on."""
        loan.is_chained = True
        self._chains.setdefault(place, deque()).append(loan)
        if loan.offsets:
            self._by_key[loan.key] = loan
            self._young.append(loan)
            if loan.invisible_ms <= STAY_MS:
                self._push_due(loan, loan.visible_ms)
        else:
            self._moved[place] = None

    def adopt(self, loan: InFlightPop, place: int, position: int) -> None:
        """Note a loan whose checkpoint is in the revive topic: changed or found there."""
        self._by_key[loan.key] = loan
        self.note_written(loan, place, position)

    def forget_chain(self, place: GroupQueue) -> None:
        """The group's progress was moved by somebody else: loans no longer move it."""
        for loan in self._chains.pop(place, ()):
            loan.is_chained = False
        self._moved.pop(place, None)

    def forget_topics(self, gone: Collection[str]) -> None:
        """Topics are gone: so are the loans of them."""
        for place in [place for place in self._chains if place.topic in gone]:
            self.forget_chain(place)
        for loan in [loan for loan in self._by_key.values() if loan.key.topic in gone]:
            self.settle(loan, (1 << len(loan.offsets)) - 1)

    # --- settling -----------------------------------------------------------------------------

    def acknowledge(self, loan: InFlightPop, bits: int, now_ms: int, position: int = 0) -> None:
        """Settle messages by their consumers' word."""
        bits &= ~loan.settled
        if not bits:
            return
        if loan.place >= 0:
            if not loan.unwritten:
                self._acked.append((now_ms, loan))
            loan.unwritten |= bits
        self.settle(loan, bits, position)

    def settle(self, loan: InFlightPop, bits: int, position: int = 0) -> None:
        """Settle messages; what stands for them instead ends at a log position."""
        loan.settle(bits, position)
        if loan.is_settled:
            self._by_key.pop(loan.key, None)
            self._note_moved(loan)

    def note_written(self, loan: InFlightPop, place: int, position: int) -> None:
        """A loan's checkpoint is in the revive topic, up to a log position."""
        loan.place = place
        loan.safe_position = max(loan.safe_position, position)
        queue = self._revive_queues.setdefault(loan.revive_queue, _ReviveQueue())
        queue.checkpoints.append(loan)
        self.note_revive_end(loan.revive_queue, place + 1)
        self._push_due(loan, loan.visible_ms)
        self._note_moved(loan)

    def note_revive_end(self, revive_queue: int, end: int) -> None:
        """Records of a revive queue are known up to here."""
        queue = self._revive_queues.setdefault(revive_queue, _ReviveQueue())
        queue.end = max(queue.end, end)

    # --- what is to be done -------------------------------------------------------------------

    def take_old(
        self, now_ms: int, count_max: int, *, all_of_them: bool = False
    ) -> list[InFlightPop]:
        """Loans that were in memory for long enough and are to be written."""
        taken: list[InFlightPop] = []
        while self._young and len(taken) < count_max:
            loan = self._young[0]
            is_open = not loan.is_settled and loan.place < 0
            if is_open and not all_of_them and now_ms < loan.key.pop_ms + STAY_MS:
                break
            self._young.popleft()
            if is_open:
                taken.append(loan)
        return taken

    def put_back_old(self, loans: list[InFlightPop]) -> None:
        """What was taken could not be written."""
        self._young.extendleft(reversed(loans))

    def take_acked(
        self, now_ms: int, count_max: int, *, all_of_them: bool = False
    ) -> list[InFlightPop]:
        """Loans with acknowledgements that are to be written."""
        taken: list[InFlightPop] = []
        while self._acked and len(taken) < count_max:
            since_ms, loan = self._acked[0]
            if not all_of_them and now_ms < since_ms + STAY_MS:
                break
            self._acked.popleft()
            # The mark may have passed the checkpoint meanwhile: nobody will read it again.
            if loan.place >= 0:
                taken.append(loan)
        return taken

    def put_back_acked(self, loans: list[InFlightPop]) -> None:
        """What was taken could not be written."""
        self._acked.extendleft((0, loan) for loan in reversed(loans))

    def take_due(self, now_ms: int, count_max: int) -> list[InFlightPop]:
        """Loans whose messages are visible again, the earliest first."""
        taken: list[InFlightPop] = []
        while self._due and len(taken) < count_max and self._due[0][0] <= now_ms:
            loan = heapq.heappop(self._due)[2]
            if not loan.is_settled:
                taken.append(loan)
        return taken

    def wait_until(self, loan: InFlightPop, due_ms: int) -> None:
        """A loan could not be revived: try again then."""
        self._push_due(loan, due_ms)

    def take_progress(self, durable_end: int) -> Iterator[tuple[GroupQueue, int]]:
        """The progress that groups have made since the last time."""
        for place in list(self._moved):
            chain = self._chains.get(place)
            end = -1
            while chain and _may_pass(chain[0], durable_end):
                loan = chain.popleft()
                loan.is_chained = False
                end = loan.end
            if not chain:
                self._chains.pop(place, None)
            if not chain or not (chain[0].is_settled or chain[0].place >= 0):
                del self._moved[place]
            if end >= 0:
                yield place, end

    def take_marks(self, durable_end: int) -> Iterator[tuple[int, int]]:
        """(revive queue, offset) up to which nothing has to be read again after a crash."""
        for index, queue in self._revive_queues.items():
            while queue.checkpoints:
                loan = queue.checkpoints[0]
                if not loan.is_settled or loan.safe_position > durable_end:
                    break
                queue.checkpoints.popleft()
                loan.place = -1
            end = queue.checkpoints[0].place if queue.checkpoints else queue.end
            yield index, end

    def _note_moved(self, loan: InFlightPop) -> None:
        if loan.is_chained:
            self._moved[GroupQueue(loan.key.topic, loan.key.group, loan.key.queue_index)] = None

    def _push_due(self, loan: InFlightPop, due_ms: int) -> None:
        heapq.heappush(self._due, (due_ms, next(self._numbers), loan))


def _may_pass(loan: InFlightPop, durable_end: int) -> bool:
    return (loan.is_settled or loan.place >= 0) and loan.safe_position <= durable_end
