"""The limits of flow control: how many pulled messages of a queue may wait for consumption."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol

# A pull of fewer messages costs more than it brings.
_PULL_COUNT_MIN: Final = 32


class Cached(Protocol):
    """The messages of one queue that are pulled and not consumed yet."""

    @property
    def count(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def span(self) -> int: ...


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits of one queue's waiting messages. Raises ValueError."""

    count_max: int = 1_000
    size_max: int = 100 * 1024 * 1024
    span_max: int | None = 2_000
    """The limit of the offsets' span; None in orderly consumption, which starts at the oldest."""
    topic_count_max: int | None = None
    """The limit of a topic, divided equally among its queues here; it replaces `count_max`."""
    topic_size_max: int | None = None
    """The limit of a topic, divided equally among its queues here; it replaces `size_max`."""

    def __post_init__(self) -> None:
        optional = (self.span_max, self.topic_count_max, self.topic_size_max)
        limits = [self.count_max, self.size_max, *(one for one in optional if one is not None)]
        if min(limits) < 1:
            raise ValueError(f"limits of a queue must be at least 1, got {limits}")

    def shared_by(self, queue_count: int) -> FlowLimits:
        """The limits of one of a topic's queues; each queue may have one message or byte."""
        count_max, size_max = self.count_max, self.size_max
        if self.topic_count_max is not None:
            count_max = max(1, self.topic_count_max // queue_count)
        if self.topic_size_max is not None:
            size_max = max(1, self.topic_size_max // queue_count)
        return replace(self, count_max=count_max, size_max=size_max)

    def exceeded(self, queue: Cached) -> str | None:
        """The exceeded limit in words; None if the queue may be pulled from."""
        if queue.count >= self.count_max:
            return f"{queue.count} messages wait, the limit is {self.count_max}"
        if queue.size >= self.size_max:
            return f"{queue.size} bytes wait, the limit is {self.size_max}"
        if self.span_max is not None and queue.count and queue.span > self.span_max:
            return f"the offsets that wait span {queue.span}, the limit is {self.span_max}"
        return None

    def room(self, queue: Cached, batch_size: int) -> int:
        """How many messages to pull: as many as fit, but not a tiny number."""
        return min(batch_size, max(self.count_max - queue.count, _PULL_COUNT_MIN))
