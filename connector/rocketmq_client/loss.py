"""Losses of offsets: their reasons, their value, and the judgement whether offsets are gone.

A broker answers "offset illegal" for five different causes, and "no message" for two. Only fresh
bounds of the queue and a fresh route of its topic distinguish them: `judge_doubt` decides for a
download in the middle of a range, `judge_offset` for the offset where reading starts.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, FilterUnsupportedError, RocketMQError
from rocketmq_wire.model import Bounds, OffsetRange, QueueId


class LossReason(enum.Enum):
    """Why offsets are gone; the value is the error's condition."""

    EXPIRED = "OFFSET_EXPIRED"
    TRUNCATED = "TRUNCATED"
    TOPIC_DELETED = "TOPIC_DELETED"
    TOPIC_RECREATED = "TOPIC_RECREATED"
    QUEUE_REMOVED = "QUEUE_REMOVED"
    HOLE = "HOLE"


class LossPolicy(enum.Enum):
    """What a download does if offsets are gone."""

    RAISE = "raise"
    """Raise RangeLostError."""
    SKIP = "skip"
    """Continue behind the gap, and report it in the chunk."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets that are gone, why, and what the queue held when that was seen."""

    reason: LossReason
    queue: QueueId
    start: int
    """The first offset that was wanted and is gone."""
    next_offset: int | None
    """The offset where reading resumes; None if the queue is gone."""
    bounds: Bounds | None
    count: int | None
    """The number of messages that are gone; None if it is unknown."""

    @property
    def end(self) -> int:
        """The end of a lost range."""
        assert self.next_offset is not None
        return self.next_offset


def lost_range(
    reason: LossReason, queue: QueueId, start: int, end: int, bounds: Bounds | None
) -> Loss:
    return Loss(reason, queue, start, end, bounds, end - start)


class Standing(enum.Enum):
    """What a fresh route says about a queue."""

    SERVED = "served"
    PROVISIONAL = "served without a master that takes writes"
    """A replica may act as master, and lack the master's newest messages."""
    TOPIC_GONE = "topic gone"
    QUEUE_GONE = "queue gone"


class DoubtKind(enum.Enum):
    """The answer because of which an offset may be gone."""

    ILLEGAL = "the broker calls the offset illegal"
    VANISHED = "the broker passed the offset without its message"
    LOST = "the broker reports the message as lost"
    SHORT = "the broker has no message there yet"
    REFUSED = "the broker refused the pull"


# "queueId is illegal" before and since 5.3.2; 1 is also every exception in the broker.
_DOUBTFUL_CODES: Final = frozenset(
    {ResponseCode.SYSTEM_ERROR, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER}
)


def is_doubtful(error: RocketMQError) -> bool:
    """True if a refusal may mean that the queue is gone, which its bounds show."""
    if isinstance(error, FilterUnsupportedError):
        return False  # Also code 1, but no time changes it.
    return isinstance(error, BrokerError) and error.code in _DOUBTFUL_CODES


@dataclass(frozen=True, slots=True)
class Doubt:
    """Offsets that may be gone until fresh bounds decide."""

    kind: DoubtKind
    start: int
    """The offset that was pulled."""
    end: int
    """The offset where the broker would continue (VANISHED, LOST), else the range's end."""


def judge_doubt(
    missing: OffsetRange, doubt: Doubt, bounds: Bounds, standing: Standing, *, is_overdue: bool
) -> Loss | None:
    """Decide a doubt of a download; None if no loss is proven yet.

    `missing` reaches from the first offset that has not arrived to the end of the range.
    `is_overdue` is true if the doubt has lasted for as long as an outage may.
    """
    queue, start, end = missing.queue, missing.start, missing.end
    # A broker that knows the topic answers with its bounds, even while it is missing from the
    # route for a moment: only zero bounds or a refusal beside a missing route is a deletion.
    is_absent = bounds == Bounds(0, 0) or doubt.kind is DoubtKind.REFUSED
    if standing in (Standing.TOPIC_GONE, Standing.QUEUE_GONE) and is_absent:
        is_topic = standing is Standing.TOPIC_GONE
        reason = LossReason.TOPIC_DELETED if is_topic else LossReason.QUEUE_REMOVED
        return lost_range(reason, queue, start, end, None)
    if doubt.kind is DoubtKind.REFUSED:
        return None
    # A replica may lack offsets that its master has.
    if not (bounds.is_current or is_overdue):
        return None
    if bounds.start > doubt.start:
        return lost_range(LossReason.EXPIRED, queue, start, min(bounds.start, end), bounds)
    if doubt.kind is DoubtKind.VANISHED and not bounds.has_first:
        # The log before these messages has expired, and so have they: RocketMQ 4.9 keeps the
        # start of a queue that expired whole.
        there = Bounds(max(bounds.start, doubt.end), bounds.end, bounds.is_current)
        return lost_range(LossReason.EXPIRED, queue, doubt.start, min(doubt.end, end), there)
    # The plan saw the master end at or behind the range. A queue that ends earlier has been cut,
    # unless a replica acts as its master: that one may lag behind offsets that were not read yet.
    is_masters = standing is Standing.SERVED or is_overdue
    if bounds.end < start or (is_masters and bounds.end < end):
        return lost_range(LossReason.TRUNCATED, queue, max(start, bounds.end), end, bounds)
    is_proven = doubt.kind is DoubtKind.LOST and bounds.end >= doubt.end
    if is_proven or (is_overdue and doubt.kind is DoubtKind.VANISHED):
        return lost_range(LossReason.HOLE, queue, doubt.start, min(doubt.end, end), bounds)
    return None


def judge_offset(
    queue: QueueId,
    wanted: int,
    bounds: Bounds,
    *,
    first_offset_seen: int | None = None,
    first_store_time: int | None = None,
    first_store_time_now: int | None = None,
    is_overdue: bool = False,
) -> Loss | None:
    """Decide what became of the offset to read next; None if it is there, or still to come.

    `first_offset_seen` is the queue's first offset as seen before. It only ever grows, unless the
    topic was recreated. (A replica has a first offset of its own.) `first_store_time` and
    `first_store_time_now` are when the message at offset 0 was stored, then and now. A replica may
    lag behind its master, so its bounds prove nothing until the outage `is_overdue`.
    """
    if not (bounds.is_current or is_overdue):
        return None
    is_recreated = (
        first_store_time is not None
        and first_store_time_now is not None
        and bounds.start == 0
        and first_store_time != first_store_time_now
    )
    is_lower = (
        bounds.is_current and first_offset_seen is not None and bounds.start < first_offset_seen
    )
    if wanted > 0 and (is_lower or is_recreated):
        return Loss(LossReason.TOPIC_RECREATED, queue, wanted, bounds.start, bounds, None)
    if wanted < bounds.start:
        return lost_range(LossReason.EXPIRED, queue, wanted, bounds.start, bounds)
    if wanted > bounds.end:
        gone = wanted - bounds.end
        return Loss(LossReason.TRUNCATED, queue, wanted, bounds.end, bounds, gone)
    return None
