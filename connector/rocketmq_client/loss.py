"""What it means when wanted offsets are not there: the reasons, the error, and the judgement.

A broker says "offset illegal" for five different causes, and "nothing here" for two. Only fresh
bounds of the queue and a fresh route of its topic tell them apart.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, FilterUnsupportedError, RocketMQError
from rocketmq_wire.model import Bounds, QueueId


class LossReason(enum.Enum):
    """Why offsets are gone."""

    EXPIRED = "retention removed them"
    TRUNCATED = "the queue ends before them"
    DELETED = "the topic was deleted"
    SHRUNK = "the topic has fewer queues now"
    MISSING = "the queue lists them, but their messages are gone"


class LossPolicy(enum.Enum):
    """What a download does where offsets are gone."""

    RAISE = "raise"
    SKIP = "skip"


class RangeLostError(RocketMQError):
    """The offsets `[start, end)` of a queue were wanted and are gone."""

    def __init__(
        self, queue: QueueId, start: int, end: int, bounds: Bounds | None, reason: LossReason
    ) -> None:
        super().__init__(queue, start, end, bounds, reason)
        self.queue, self.start, self.end = queue, start, end
        self.bounds, self.reason = bounds, reason

    @property
    def count(self) -> int:
        """How many offsets are gone."""
        return self.end - self.start

    def __str__(self) -> str:
        there = f"[{self.bounds.start},{self.bounds.end})" if self.bounds else "nothing"
        gone = "1 offset" if self.count == 1 else f"{self.count} offsets"
        verb = "is" if self.count == 1 else "are"
        return (
            f"[ROCKETMQ_DATA_LOSS.{_CLASSES[self.reason]}] {self.queue} requested={self.start} "
            f"available={there}: {gone} up to {self.end} {verb} gone, {self.reason.value}."
        )


# As the Spark side names them.
_CLASSES: Final = {
    LossReason.EXPIRED: "OFFSET_EXPIRED",
    LossReason.TRUNCATED: "TRUNCATED",
    LossReason.DELETED: "TOPIC_DELETED",
    LossReason.SHRUNK: "QUEUE_REMOVED",
    LossReason.MISSING: "HOLE",
}


class Standing(enum.Enum):
    """What a fresh route says about a queue."""

    SERVED = "served"
    TOPIC_GONE = "topic gone"
    QUEUE_GONE = "queue gone"


class DoubtKind(enum.Enum):
    """What made us doubt that an offset is still there."""

    ILLEGAL = "the broker calls the offset illegal"
    VANISHED = "the broker went past the offset without giving its message"
    LOST = "the broker says that the message is lost for good"
    SHORT = "the broker says that nothing is there yet"
    REFUSED = "the broker refused the pull"


# "queueId is illegal" before and since 5.3.2; 1 is also every exception in the broker.
_DOUBTFUL_CODES: Final = frozenset(
    {ResponseCode.SYSTEM_ERROR, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER}
)


def is_doubtful(error: RocketMQError) -> bool:
    """True for a refusal that may mean that the queue is gone: its bounds have to be looked at."""
    if isinstance(error, FilterUnsupportedError):
        return False  # Also code 1, but no time changes it.
    return isinstance(error, BrokerError) and error.code in _DOUBTFUL_CODES


@dataclass(frozen=True, slots=True)
class Doubt:
    """A question that only fresh bounds can answer."""

    kind: DoubtKind
    start: int
    """The offset that was asked."""
    end: int
    """Where the broker would go on (VANISHED, LOST), else where the wanted range ends."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets that are gone, why, and what the queue held when that was seen."""

    start: int
    end: int
    reason: LossReason
    bounds: Bounds | None


def judge(
    doubt: Doubt,
    bounds: Bounds,
    standing: Standing,
    *,
    missing: tuple[int, int],
    is_overdue: bool,
) -> Loss | None:
    """Decide a doubt; None means that nothing is proven lost: ask again.

    `missing` reaches from the first offset that has not arrived to the end of what is wanted;
    `is_overdue` says that asking again has gone on for as long as an outage may last.
    """
    start, end = missing
    # A broker that knows the topic answers with its bounds, even while it is out of the route
    # for a moment: only zero bounds or a refusal beside a missing route is a deletion.
    is_absent = bounds == Bounds(0, 0) or doubt.kind is DoubtKind.REFUSED
    if standing is not Standing.SERVED and is_absent:
        is_topic = standing is Standing.TOPIC_GONE
        return Loss(start, end, LossReason.DELETED if is_topic else LossReason.SHRUNK, None)
    if doubt.kind is DoubtKind.REFUSED:
        return None
    # What a replica does not have, the master may bring back.
    if not (bounds.is_current or is_overdue):
        return None
    if bounds.start > doubt.start:
        return Loss(start, min(bounds.start, end), LossReason.EXPIRED, bounds)
    if doubt.kind is DoubtKind.VANISHED and not bounds.has_first:
        # What stood in front of these messages in the log has expired, and so have they: 4.9 keeps
        # the start of a queue that expired whole.
        there = Bounds(max(bounds.start, doubt.end), bounds.end, bounds.is_current)
        return Loss(doubt.start, min(doubt.end, end), LossReason.EXPIRED, there)
    # A queue that ends below what was already read has been cut. One that ends at or behind the
    # first missing offset may only lag: a replica that took over, a log that is being recovered.
    if bounds.end < start or (is_overdue and bounds.end < end):
        return Loss(max(start, bounds.end), end, LossReason.TRUNCATED, bounds)
    is_proven = doubt.kind is DoubtKind.LOST and bounds.end >= doubt.end
    if is_proven or (is_overdue and doubt.kind is DoubtKind.VANISHED):
        return Loss(doubt.start, min(doubt.end, end), LossReason.MISSING, bounds)
    return None
