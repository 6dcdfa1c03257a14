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
        births: Mapping[QueueId, int] | None = None,
        firsts: Mapping[QueueId, int] | None = None,
    ) -> None:
        self._births = dict(births or {})
        self._firsts = dict(firsts or {})
        self._written: tuple[dict[QueueId, int], dict[QueueId, int]] | None = None

    def birth(self, queue: QueueId) -> int | None:
        """When the queue's offset 0 was stored, if that is its mark."""
        return self._births.get(queue)

    def first(self, queue: QueueId) -> int | None:
        """The first offset that was there, if that is its mark; never 0."""
        return self._firsts.get(queue)

    def note(self, queue: QueueId, held: Bounds, birth: int | None) -> None:
        """Take a mark from what a queue holds in which the place was found in order.

        A replica's first offset says nothing: it deletes old messages in its own time.
        """
        if held.is_current and held.start > self._firsts.get(queue, 0):
            self._firsts[queue] = held.start
            self._births.pop(queue, None)
            self._written = None
        elif birth is not None and queue not in self._births and queue not in self._firsts:
            self._births[queue] = birth
            self._written = None

    def forget(self, queue: QueueId) -> None:
        """What is read of a queue from here on may be another one's."""
        if queue in self._births or queue in self._firsts:
            self._births.pop(queue, None)
            self._firsts.pop(queue, None)
            self._written = None

    def written(self) -> tuple[Mapping[QueueId, int], Mapping[QueueId, int]]:
        """Births and first offsets for a checkpoint; the same objects until one changes."""
        if self._written is None:
            self._written = dict(self._births), dict(self._firsts)
        return self._written
