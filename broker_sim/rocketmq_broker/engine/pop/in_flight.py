"""The pops in flight, and how far they let committed offsets and revive queues advance.

One pop of one queue is one `InFlightPop`. Memory holds it; if it is not finished after a while, the
broker writes its checkpoint to the revive topic. Acknowledgements finish its messages, or their
revival does. Two offsets follow behind, both only over what would survive a crash:

    the group's committed offset   over a queue's pops, in order: finished or checkpoint written
    a revive queue's mark          over its checkpoints, in order: finished

So an unfinished message is always at or behind the group's committed offset, or in a checkpoint
behind the mark. A finish by another record, and a checkpoint, count only once that record is
durable: `safe_position` is the end of the log that must be durable for it.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rocketmq_wire.model import QueueId
from rocketmq_wire.records.pop_checkpoints import CheckpointKey

STAY_MS: Final = 3_000
"""How long pops and acknowledgements stay in memory before they are written."""


class GroupQueue(NamedTuple):
    """One queue as one group consumes it."""

    topic: str
    group: str
    queue_index: int

    @property
    def queue(self) -> QueueId:
        return QueueId(self.topic, "", self.queue_index)


@dataclass(eq=False, slots=True)
class InFlightPop:
    """The messages of one queue that one pop returned."""

    key: CheckpointKey
    invisible_ms: int
    offsets: tuple[int, ...]
    end: int
    """The offset behind the examined messages: the next pop begins there."""
    revive_queue: int
    finished: int = 0
    """Bit i: the i-th message is acknowledged, or stored again."""
    checkpoint_offset: int = -1
    """The offset of the checkpoint in its revive queue; -1: not written."""
    safe_position: int = 0
    """The end of the log that must be durable before an offset may pass this pop."""
    unwritten: int = 0
    """Bits acknowledged since the checkpoint or the last ack record was written."""
    recorded: int = 0
    """Bits that are finished by the checkpoint or by an ack record."""
    failures: int = 0
    """The number of failed revivals."""
    is_chained: bool = False
    """True while the group's committed offset has to pass this pop."""

    @property
    def group_queue(self) -> GroupQueue:
        return GroupQueue(self.key.topic, self.key.group, self.key.queue_index)

    @property
    def all_bits(self) -> int:
        return (1 << len(self.offsets)) - 1

    @property
    def is_finished(self) -> bool:
        return self.finished == self.all_bits

    @property
    def is_passable(self) -> bool:
        return self.is_finished or self.checkpoint_offset >= 0

    @property
    def visible_ms(self) -> int:
        return self.key.pop_ms + self.invisible_ms

    def offsets_of(self, bits: int) -> tuple[int, ...]:
        return tuple(offset for index, offset in enumerate(self.offsets) if bits >> index & 1)

    def bits_of(self, offsets: Iterable[int]) -> int:
        """The bits of those offsets that this pop returned."""
        wanted = tuple(offsets)
        if wanted == self.offsets:
            return self.all_bits
        bits = 0
        for offset in wanted:
            if offset in self.offsets:
                bits |= 1 << self.offsets.index(offset)
        return bits


@dataclass(slots=True)
class _ReviveQueue:
    checkpoints: deque[InFlightPop] = field(default_factory=deque)
    """The written checkpoints behind the mark, in order."""
    end: int = 0
    """The offset behind the last known record."""


class InFlightPops:
    def __init__(self) -> None:
        self._by_key: dict[CheckpointKey, InFlightPop] = {}
        self._chains: dict[GroupQueue, deque[InFlightPop]] = {}
        self._moved: dict[GroupQueue, None] = {}
        """Queues whose first pops may let the committed offset advance."""
        self._young: deque[InFlightPop] = deque()
        self._acked: deque[tuple[int, InFlightPop]] = deque()
        self._due: list[tuple[int, int, InFlightPop]] = []
        self._numbers = itertools.count()
        self._revive_queues: dict[int, _ReviveQueue] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: CheckpointKey) -> InFlightPop | None:
        return self._by_key.get(key)

    # --- popping ------------------------------------------------------------------------------

    def next_offset(self, queue: GroupQueue, committed: int) -> int:
        """The offset where a queue's next pop begins, for a group with this committed offset."""
        chain = self._chains.get(queue)
        return max(chain[-1].end, committed) if chain else committed

    def add(self, queue: GroupQueue, pop: InFlightPop) -> None:
        """Add a pop behind the queue's others; one without messages only moves the next offset."""
        pop.is_chained = True
        self._chains.setdefault(queue, deque()).append(pop)
        if pop.offsets:
            self._by_key[pop.key] = pop
            self._young.append(pop)
            if pop.invisible_ms <= STAY_MS:
                self.wait_until(pop, pop.visible_ms)
        else:
            self._moved[queue] = None

    def forget_chain(self, queue: GroupQueue) -> None:
        """Stop the queue's pops from advancing the committed offset: it was moved otherwise."""
        for pop in self._chains.pop(queue, ()):
            pop.is_chained = False
        self._moved.pop(queue, None)

    def forget_topic(self, topic: str) -> None:
        """Finish all pops of a deleted topic."""
        for queue in [queue for queue in self._chains if queue.topic == topic]:
            self.forget_chain(queue)
        for pop in [pop for pop in self._by_key.values() if pop.key.topic == topic]:
            self.finish(pop, pop.all_bits)

    # --- finishing ----------------------------------------------------------------------------

    def acknowledge(self, pop: InFlightPop, bits: int, now_ms: int, position: int = 0) -> None:
        """Finish messages that their consumer acknowledged."""
        bits &= ~pop.finished
        if not bits:
            return
        if pop.checkpoint_offset >= 0:
            if not pop.unwritten:
                self._acked.append((now_ms, pop))
            pop.unwritten |= bits
        self.finish(pop, bits, position)

    def finish(self, pop: InFlightPop, bits: int, position: int = 0) -> None:
        """Finish messages; the record that replaces them ends at a log position."""
        pop.finished |= bits
        pop.safe_position = max(pop.safe_position, position)
        if pop.is_finished:
            self._by_key.pop(pop.key, None)
            self._note_moved(pop)

    def note_written(self, pop: InFlightPop, checkpoint_offset: int, position: int) -> None:
        """Note a pop's checkpoint in the revive topic, which ends at a log position.

        The pop may be a changed one, or one from before the start, that was not in flight yet.
        """
        self._by_key[pop.key] = pop
        pop.checkpoint_offset = checkpoint_offset
        pop.safe_position = max(pop.safe_position, position)
        queue = self._revive_queues.setdefault(pop.revive_queue, _ReviveQueue())
        queue.checkpoints.append(pop)
        self.note_revive_end(pop.revive_queue, checkpoint_offset + 1)
        self.wait_until(pop, pop.visible_ms)
        self._note_moved(pop)

    def note_revive_end(self, revive_queue: int, end: int) -> None:
        """Note that the records of a revive queue are known up to an offset."""
        queue = self._revive_queues.setdefault(revive_queue, _ReviveQueue())
        queue.end = max(queue.end, end)

    def unrecorded(self) -> Iterator[InFlightPop]:
        """The written pops of which a start would not know how much is finished.

        They are behind an unfinished one in their revive queue, and were stored again.
        """
        for queue in self._revive_queues.values():
            yield from (pop for pop in queue.checkpoints if pop.finished & ~pop.recorded)

    # --- work that is due ---------------------------------------------------------------------

    def unwritten(self, before_ms: int, count_max: int) -> Iterator[InFlightPop]:
        """The unwritten pops from before a time; each stays until the caller asks for the next."""
        while self._young and count_max > 0:
            pop = self._young[0]
            if not pop.is_finished and pop.checkpoint_offset < 0:
                if pop.key.pop_ms > before_ms:
                    return
                count_max -= 1
                yield pop
            self._young.popleft()

    def unwritten_acks(self, before_ms: int, count_max: int) -> Iterator[InFlightPop]:
        """The pops with unwritten acknowledgements from before a time, like `unwritten`."""
        while self._acked and count_max > 0:
            since_ms, pop = self._acked[0]
            if since_ms > before_ms:
                return
            # Once the mark has passed the checkpoint, no start reads it again.
            if pop.checkpoint_offset >= 0:
                count_max -= 1
                yield pop
            self._acked.popleft()

    def take_due(self, now_ms: int, count_max: int) -> list[InFlightPop]:
        """Take the pops whose messages are visible again, the earliest first."""
        taken: list[InFlightPop] = []
        while self._due and len(taken) < count_max and self._due[0][0] <= now_ms:
            pop = heapq.heappop(self._due)[2]
            if not pop.is_finished:
                taken.append(pop)
        return taken

    def wait_until(self, pop: InFlightPop, due_ms: int) -> None:
        """Make a pop due at a time."""
        heapq.heappush(self._due, (due_ms, next(self._numbers), pop))

    def take_committed(self, durable_end: int) -> Iterator[tuple[GroupQueue, int]]:
        """The offsets that groups may commit since the last call."""
        for queue in list(self._moved):
            chain = self._chains.get(queue)
            end = -1
            while chain and chain[0].is_passable and chain[0].safe_position <= durable_end:
                pop = chain.popleft()
                pop.is_chained = False
                end = pop.end
            if not chain:
                self._chains.pop(queue, None)
            if not chain or not chain[0].is_passable:
                del self._moved[queue]
            if end >= 0:
                yield queue, end

    def take_marks(self, durable_end: int) -> Iterator[tuple[int, int]]:
        """The offset of each revive queue from which a start has to read."""
        for index, queue in self._revive_queues.items():
            while queue.checkpoints:
                pop = queue.checkpoints[0]
                if not pop.is_finished or pop.safe_position > durable_end:
                    break
                queue.checkpoints.popleft()
                pop.checkpoint_offset = -1
            yield index, queue.checkpoints[0].checkpoint_offset if queue.checkpoints else queue.end

    def _note_moved(self, pop: InFlightPop) -> None:
        if pop.is_chained:
            self._moved[pop.group_queue] = None
