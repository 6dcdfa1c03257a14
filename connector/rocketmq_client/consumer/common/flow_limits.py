"""The limits of flow control: how much of a queue may be pulled and not consumed yet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol

# A pull for less than this would cost more than it brings.
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
    """What of one queue may wait here to be consumed. Raises ValueError."""

    count_max: int = 1_000
    size_max: int = 100 * 1024 * 1024
    span_max: int | None = 2_000
    """None in orderly consumption, where the oldest message is always the next."""
    topic_count_max: int | None = None
    """Of all of a topic's queues here, which share it alike; it takes the place of `count_max`."""
    topic_size_max: int | None = None
    """The same in place of `size_max`."""

    def __post_init__(self) -> None:
        limits = (
            self.count_max,
            self.size_max,
            *(() if self.span_max is None else (self.span_max,)),
        )
        of_topic = (self.topic_count_max, self.topic_size_max)
        given = [*limits, *(limit for limit in of_topic if limit is not None)]
        if min(given) < 1:
            raise ValueError(f"limits of a queue must be at least 1, got {given}")

    def shared_by(self, queue_count: int) -> FlowLimits:
        """What one of so many queues of a topic may have; each may have something."""
        count_max, size_max = self.count_max, self.size_max
        if self.topic_count_max is not None:
            count_max = max(1, self.topic_count_max // queue_count)
        if self.topic_size_max is not None:
            size_max = max(1, self.topic_size_max // queue_count)
        return replace(self, count_max=count_max, size_max=size_max)

    def exceeded(self, queue: Cached) -> str | None:
        """Which limit the queue is over, in words; None when it may be pulled from."""
        if queue.count >= self.count_max:
            return f"{queue.count} messages wait, the limit is {self.count_max}"
        if queue.size >= self.size_max:
            return f"{queue.size} bytes wait, the limit is {self.size_max}"
        if self.span_max is not None and queue.count and queue.span > self.span_max:
            return f"the offsets that wait span {queue.span}, the limit is {self.span_max}"
        return None

    def room(self, queue: Cached, batch_size: int) -> int:
        """How many messages to ask for: what fits, but no tiny number."""
        return min(batch_size, max(self.count_max - queue.count, _PULL_COUNT_MIN))
