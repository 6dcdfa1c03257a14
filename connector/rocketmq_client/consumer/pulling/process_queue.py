"""What of one queue was pulled and is not consumed yet, and how far the queue is done: pure.

Everything before the smallest offset still pending is done. When nothing is pending, everything
that was pulled is done, so progress moves also where a filter let nothing through.

    add -> pending -> (taken by a listener) -> remove          offsets only grow
                   -> take: gone, and not done before `finish_taken`
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_wire.model import QueueId

LOCK_AGE_MS_MAX: Final = 30_000
"""A queue lock that was not renewed for so long is not trusted: another may have it soon."""
PULL_AGE_MS_MAX: Final = 120_000
"""Pulls of a queue that nothing was heard of for so long have died, and are begun again."""


@dataclass(slots=True)
class ProcessQueue:
    """Not thread-safe; the shell has a lock for each."""

    queue: QueueId
    next_begin: int
    """Where the next pull starts: all before it was pulled, or did not match."""
    pending: dict[int, ReceivedMessage] = field(default_factory=dict)
    """By offset, in order of offset."""
    size: int = 0
    """Bytes of the bodies pending."""
    taken_from: int | None = None
    """The progress until what was taken is settled; None: nothing was taken."""
    is_dropped: bool = False
    """The queue belongs to another member now: nothing counts any more."""
    is_locked: bool = False
    lock_ms: int = 0
    """When the broker last said that the queue is ours."""
    last_pull_ms: int = 0
    last_consume_ms: int = 0
    end: int = 0
    """The queue's end as the broker last said it."""

    def add(self, messages: Sequence[ReceivedMessage], next_begin: int) -> None:
        """Take over a pull's messages; `next_begin` is behind all that the pull looked at."""
        pending, size = self.pending, self.size
        for message in messages:
            pending[message.queue_offset] = message
            size += len(message.body)
        self.size = size
        self.next_begin = max(self.next_begin, next_begin)

    def remove(self, messages: Iterable[ReceivedMessage]) -> None:
        """These are consumed, sent back, or given up. What is not pending any more is passed."""
        pending, size = self.pending, self.size
        for message in messages:
            if pending.pop(message.queue_offset, None) is not None:
                size -= len(message.body)
        self.size = size

    def take(self, messages: Iterable[ReceivedMessage]) -> None:
        """These wait no more, and others are pulled in their stead; they are not done yet."""
        if self.taken_from is None:
            self.taken_from = self.consumed_offset
        self.remove(messages)

    def finish_taken(self) -> None:
        """All that was taken is done."""
        self.taken_from = None

    def first(self, count: int) -> list[ReceivedMessage]:
        """The first messages pending, which stay so."""
        return list(itertools.islice(self.pending.values(), count))

    @property
    def count(self) -> int:
        return len(self.pending)

    @property
    def consumed_offset(self) -> int:
        """The progress: the smallest offset that is not consumed."""
        return self.waiting_from if self.taken_from is None else self.taken_from

    @property
    def waiting_from(self) -> int:
        """The smallest offset that waits here, or would come next."""
        for offset in self.pending:
            return offset
        return self.next_begin

    def corrected(self, next_begin: int) -> int:
        """Where to go on when the broker names another offset than ours.

        When the queue's end went back, what was pulled and not consumed may still be there.
        """
        return min(next_begin, self.consumed_offset) if next_begin < self.next_begin else next_begin

    @property
    def span(self) -> int:
        """How far the newest pending message is from the oldest one."""
        if not self.pending:
            return 0
        return next(reversed(self.pending)) - next(iter(self.pending))

    def is_lock_valid(self, now_ms: int) -> bool:
        """The queue is ours by the broker's word, which is young enough."""
        return self.is_locked and now_ms - self.lock_ms <= LOCK_AGE_MS_MAX

    def is_pull_stale(self, now_ms: int) -> bool:
        return now_ms - self.last_pull_ms > PULL_AGE_MS_MAX

    def drop(self) -> None:
        """The queue is another's: what is pending will not be consumed here."""
        self.is_dropped = True

    def clear(self) -> None:
        """Forget what is pending; what was not consumed is pulled again by whoever owns it."""
        self.pending.clear()
        self.size = 0
