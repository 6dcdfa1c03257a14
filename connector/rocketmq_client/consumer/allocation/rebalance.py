"""Which queues a member gains and loses when its group or the topic's queues change: pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rocketmq_client.consumer.allocation.strategies import Strategy, allocate, sort_queues
from rocketmq_wire.model import QueueId


@dataclass(frozen=True, slots=True)
class Change:
    """What to do: first give up what is lost, then begin with what is gained. Both sorted."""

    gained: tuple[QueueId, ...]
    lost: tuple[QueueId, ...]

    @property
    def is_empty(self) -> bool:
        return not self.gained and not self.lost


def rebalance(
    strategy: Strategy,
    *,
    own_id: str,
    members: Collection[str],
    queues: Iterable[QueueId],
    current: Collection[QueueId],
) -> Change:
    """The change for a group that shares its queues.

    An empty list of members is what a broker answers before it has our heartbeat: nothing changes
    then, for giving all up would only repeat messages.
    """
    if not members:
        return Change((), ())
    return change_between(current, allocate(strategy, own_id, queues, members))


def change_between(current: Collection[QueueId], wanted: Iterable[QueueId]) -> Change:
    """From what is owned to what is wanted; broadcasting members want every queue."""
    target = set(wanted)
    gained = sort_queues(queue for queue in target if queue not in current)
    lost = sort_queues(queue for queue in current if queue not in target)
    return Change(tuple(gained), tuple(lost))
