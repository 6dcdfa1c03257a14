"""What tells a queue from one of a topic that was created anew: RocketMQ gives neither an identity.

    while offset 0 is there    when it was stored, the queue's birth
    from then on               the first offset that was there: it only ever grows

One of the two is kept for each queue. Once the first offset has grown the birth would tell nothing
more: a queue that begins at 0 again is then one that begins below what was seen.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_wire.model import Bounds, QueueId


class TopicIdentity:
    """The marks of one query's queues; a mark stands until its queue is judged and forgotten."""

    def __init__(
        self,
        first_store_times: Mapping[QueueId, int] | None = None,
        first_offsets: Mapping[QueueId, int] | None = None,
    ) -> None:
        self._first_store_times = dict(first_store_times or {})
        self._first_offsets = dict(first_offsets or {})
        self._written: tuple[dict[QueueId, int], dict[QueueId, int]] | None = None

    def first_store_time(self, queue: QueueId) -> int | None:
        """When the queue's offset 0 was stored, if that is its mark."""
        return self._first_store_times.get(queue)

    def first_offset(self, queue: QueueId) -> int | None:
        """The first offset that was there, if that is its mark; never 0."""
        return self._first_offsets.get(queue)

    def note(self, queue: QueueId, held: Bounds, first_store_time: int | None) -> None:
        """Take a mark from what a queue holds in which the place was found in order.

        A replica's first offset says nothing: it deletes old messages in its own time.
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
        """What is read of a queue from here on may be another one's."""
        if queue in self._first_store_times or queue in self._first_offsets:
            self._first_store_times.pop(queue, None)
            self._first_offsets.pop(queue, None)
            self._written = None

    def written(self) -> tuple[Mapping[QueueId, int], Mapping[QueueId, int]]:
        """Births and first offsets for a checkpoint; the same objects until one changes."""
        if self._written is None:
            self._written = dict(self._first_store_times), dict(self._first_offsets)
        return self._written
