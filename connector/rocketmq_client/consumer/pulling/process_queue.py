"""A queue's messages that are pulled and not consumed yet, and its consumed offset: pure.

The consumed offset is the smallest pending offset. If nothing is pending, everything pulled is
consumed, so the consumed offset also moves where a filter let no message through.

    add -> pending -> (a listener consumes it) -> remove       offsets only grow
                   -> take: not pending, and consumed after `finish_taken`
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketmq_client.consumer.common.messages import ReceivedMessage

LOCK_AGE_MS_MAX: Final = 30_000
"""The age after which a queue lock is not trusted: soon another member may lock the queue."""
PULL_AGE_MS_MAX: Final = 120_000
"""The time without a pull after which a queue's pulls are restarted."""


@dataclass(slots=True)
class ProcessQueue:
    """Not thread-safe: `OwnedQueue.lock` guards it."""

    next_begin: int
    """The offset of the next pull: earlier messages were pulled or did not match the filter."""
    pending: dict[int, ReceivedMessage] = field(default_factory=dict)
    """Messages by offset, in the order of offsets."""
    size: int = 0
    """The size of the pending bodies in bytes."""
    taken_from: int | None = None
    """The consumed offset until taken messages are finished; None: none were taken."""
    is_dropped: bool = False
    """The member lost the queue: its messages are not consumed here, nor its offset committed."""
    is_locked: bool = False
    lock_ms: int = 0
    """When the broker last granted the queue's lock."""
    last_pull_ms: int = 0
    last_consume_ms: int = 0
    end: int = 0
    """The queue's end in the broker's last reply."""

    def add(self, messages: Sequence[ReceivedMessage], next_begin: int) -> None:
        """Add a pull's messages; `next_begin` is behind every offset that the pull covered."""
        pending, size = self.pending, self.size
        for message in messages:
            pending[message.queue_offset] = message
            size += len(message.body)
        self.size = size
        self.next_begin = max(self.next_begin, next_begin)

    def remove(self, messages: Iterable[ReceivedMessage]) -> None:
        """Remove messages that were consumed or sent back; ignores those not pending."""
        pending, size = self.pending, self.size
        for message in messages:
            if pending.pop(message.queue_offset, None) is not None:
                size -= len(message.body)
        self.size = size

    def take(self, messages: Iterable[ReceivedMessage]) -> None:
        """Remove messages from the flow limits; they count as consumed after `finish_taken`."""
        if self.taken_from is None:
            self.taken_from = self.consumed_offset
        self.remove(messages)

    def finish_taken(self) -> None:
        """Count all taken messages as consumed."""
        self.taken_from = None

    def first(self, count: int) -> list[ReceivedMessage]:
        """The first pending messages, which stay pending."""
        return list(itertools.islice(self.pending.values(), count))

    @property
    def count(self) -> int:
        return len(self.pending)

    @property
    def consumed_offset(self) -> int:
        """The smallest offset that is not consumed."""
        return self.waiting_from if self.taken_from is None else self.taken_from

    @property
    def waiting_from(self) -> int:
        """The smallest pending offset, or the offset of the next pull."""
        for offset in self.pending:
            return offset
        return self.next_begin

    def corrected(self, next_begin: int) -> int:
        """The offset to continue at if the broker's differs from ours.

        If the queue's end went back, messages that were pulled and not consumed may still exist.
        """
        return min(next_begin, self.consumed_offset) if next_begin < self.next_begin else next_begin

    @property
    def span(self) -> int:
        """The distance between the newest and the oldest pending offset."""
        if not self.pending:
            return 0
        return next(reversed(self.pending)) - next(iter(self.pending))

    def is_lock_valid(self, now_ms: int) -> bool:
        """The broker granted the lock recently enough."""
        return self.is_locked and now_ms - self.lock_ms <= LOCK_AGE_MS_MAX

    def is_pull_stale(self, now_ms: int) -> bool:
        return now_ms - self.last_pull_ms > PULL_AGE_MS_MAX

    def drop(self) -> None:
        """Stop consuming here: another member owns the queue."""
        self.is_dropped = True
