"""Recognises a topic that was deleted and created again: RocketMQ gives topics no identity.

    while offset 0 exists    the time when the message there was stored
    afterwards               the first offset of the queue: it only ever grows

The query keeps one of the two for each queue. Once the first offset has grown, the first store time
tells nothing more: a queue that begins at 0 again begins below the first offset seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rocketmq_wire.model import Bounds, QueueId


class QueueIdentity(NamedTuple):
    """What tells one queue from that of a recreated topic; see above."""

    first_store_time: int | None
    first_offset: int | None


class TopicIdentity:
    """The first store time or the first offset of each queue of a query."""

    def __init__(
        self,
        first_store_times: Mapping[QueueId, int] | None = None,
        first_offsets: Mapping[QueueId, int] | None = None,
    ) -> None:
        self._first_store_times = dict(first_store_times or {})
        self._first_offsets = dict(first_offsets or {})
        self._written: tuple[dict[QueueId, int], dict[QueueId, int]] | None = None

    def first_store_time(self, queue: QueueId) -> int | None:
        """Return when offset 0 of the queue was stored, if that is what is kept."""
        return self._first_store_times.get(queue)

    def first_offset(self, queue: QueueId) -> int | None:
        """Return the first offset of the queue, if that is what is kept; never 0."""
        return self._first_offsets.get(queue)

    def note(self, queue: QueueId, held: Bounds, first_store_time: int | None) -> None:
        """Note the bounds of a queue whose next offset was judged to be in order.

        A replica's first offset is ignored: a replica deletes old messages at times of its own.
        """
        if held.is_current and held.start > self._first_offsets.get(queue, 0):
            self._first_offsets[queue] = held.start
            self._first_store_times.pop(queue, None)
            self._written = None
        elif (
            first_store_time is not None
            and queue not in self._first_store_times
            and queue not in self._first_offsets
        ):
            self._first_store_times[queue] = first_store_time
            self._written = None

    def forget(self, queue: QueueId) -> None:
        """Forget the queue: nothing of it was read, or its topic was recreated."""
        if queue in self._first_store_times or queue in self._first_offsets:
            self._first_store_times.pop(queue, None)
            self._first_offsets.pop(queue, None)
            self._written = None

    def written(self) -> tuple[Mapping[QueueId, int], Mapping[QueueId, int]]:
        """Return first store times and first offsets; the same objects until one changes."""
        if self._written is None:
            self._written = dict(self._first_store_times), dict(self._first_offsets)
        return self._written
