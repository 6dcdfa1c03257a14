"""How far a group is in the queues of this member, before the store is told: pure.

Two stores take it: the broker's (a group shares its queues) and a local file (every member reads
every queue). Updates from consumption only ever increase; a correction may also go back.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from rocketmq_wire.model import QueueId


@dataclass(slots=True)
class OffsetTable:
    """Offsets by queue."""

    offsets: dict[QueueId, int] = field(default_factory=dict)

    def update(self, queue: QueueId, offset: int, *, increase_only: bool = True) -> bool:
        """Note progress; False if it is behind what is known, and so was not taken."""
        known = self.offsets.get(queue)
        if increase_only and known is not None and offset < known:
            return False
        self.offsets[queue] = offset
        return True

    def due(self, owned: Collection[QueueId]) -> dict[QueueId, int]:
        """What to store: all owned queues, each time, so that the store follows also a reset.

        Queues that are not owned any more are forgotten: their owner stores them now.
        """
        for queue in [queue for queue in self.offsets if queue not in owned]:
            self.remove(queue)
        return dict(self.offsets)

    def remove(self, queue: QueueId) -> None:
        self.offsets.pop(queue, None)
