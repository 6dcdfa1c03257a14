"""Which member reads which queue: the six strategies, and the change that a rebalance makes. Pure.

Every member computes its own share from the same two lists, so the result must equal that of a Java
member: queues sorted by topic, broker and number, client ids sorted as text, both by UTF-16 code
units.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rocketmq_wire.model import QueueId

Queues = Sequence[QueueId]
Share = tuple[QueueId, ...]

_VIRTUAL_NODES: Final = 10
_HASH_SIZE: Final = 4


class Strategy(Protocol):
    """How members share queues. Both lists are sorted, and `own_id` is among the ids."""

    @property
    def name(self) -> str:
        """RocketMQ's name of the strategy."""

    def share(self, own_id: str, queues: Queues, client_ids: Sequence[str]) -> Share:
        """Return the queues of one member."""


def allocate(
    strategy: Strategy, own_id: str, queues: Iterable[QueueId], client_ids: Iterable[str]
) -> tuple[QueueId, ...]:
    """The queues of `own_id`; none if the broker does not list it as a member."""
    members = sorted(set(client_ids), key=_utf16)
    if own_id not in members:
        return ()
    return strategy.share(own_id, sort_queues(queues), members)


def sort_queues(queues: Iterable[QueueId]) -> list[QueueId]:
    """Queues without repetition, in the order that every member must see."""
    return sorted(set(queues), key=lambda q: (_utf16(q.topic), _utf16(q.broker), q.index))


@dataclass(frozen=True, slots=True)
class Average:
    """Contiguous shares; the first members get one queue more if the division leaves a rest."""

    name: str = "AVG"
    """RocketMQ's name of the strategy."""

    def share(self, own_id: str, queues: Queues, client_ids: Sequence[str]) -> Share:
        size, rest = divmod(len(queues), len(client_ids))
        index = client_ids.index(own_id)
        start = index * size + min(index, rest)
        return tuple(queues[start : start + size + (index < rest)])


@dataclass(frozen=True, slots=True)
class AverageByCircle:
    """Members get queues in rotation."""

    name: str = "AVG_BY_CIRCLE"
    """RocketMQ's name of the strategy."""

    def share(self, own_id: str, queues: Queues, client_ids: Sequence[str]) -> Share:
        return tuple(queues[client_ids.index(own_id) :: len(client_ids)])


@dataclass(frozen=True, slots=True)
class ByConfiguration:
    """A fixed list, independent of other members."""

    queues: tuple[QueueId, ...]
    """What this member owns."""
    name: str = "CONFIG"
    """RocketMQ's name of the strategy."""

    def share(self, own_id: str, queues: Queues, client_ids: Sequence[str]) -> Share:
        del own_id, queues, client_ids
        return self.queues


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Only brokers called `<room>@<anything>` of the given rooms."""

    rooms: frozenset[str]
    """The rooms of the brokers that this member reads from."""
    name: str = "MACHINE_ROOM"
    """RocketMQ's name of the strategy."""

    def share(self, own_id: str, queues: Queues, client_ids: Sequence[str]) -> Share:
        ours = [queue for queue in queues if self._is_ours(queue.broker)]
        size, rest = divmod(len(ours), len(client_ids))
        index = client_ids.index(own_id)
        block = ours[index * size : (index + 1) * size]
        # Unlike AVG, the rest follows behind all blocks.
        left_over = ours[size * len(client_ids) + index :][: index < rest]
        return (*block, *left_over)

    def _is_ours(self, broker: str) -> bool:
        # Java splits at every "@" and takes names of exactly two parts.
        parts = broker.split("@")
        return len(parts) == 2 and parts[0] in self.rooms


@dataclass(frozen=True, slots=True)
class NearbyMachineRoom:
    """Members share the queues of their room; all members share rooms without members."""

    inner: Strategy
    """How queues are shared within a room."""
    room_of_broker: Callable[[str], str]
    """Returns the room of a broker's name."""
    room_of_client: Callable[[str], str]
    """Returns the room of a client's id."""

    @property
    def name(self) -> str:
        """RocketMQ's name, with that of the strategy within a room."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def share(self, own_id: str, queues: Queues, client_ids: Sequence[str]) -> Share:
        members: dict[str, list[str]] = {}
        for client_id in client_ids:
            members.setdefault(self.room_of_client(client_id), []).append(client_id)
        by_room: dict[str, list[QueueId]] = {}
        for queue in queues:
            by_room.setdefault(self.room_of_broker(queue.broker), []).append(queue)
        own_room = self.room_of_client(own_id)
        shared = list(self.inner.share(own_id, by_room.get(own_room, []), members[own_room]))
        for room in sorted(by_room, key=_utf16):
            if room not in members:
                shared += self.inner.share(own_id, by_room[room], client_ids)
        return tuple(shared)


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """A ring of hashed client ids: few queues move when a member joins or leaves."""

    virtual_nodes: int = _VIRTUAL_NODES
    """The positions of one client id on the ring."""
    name: str = "CONSISTENT_HASH"
    """RocketMQ's name of the strategy."""
    hash_text: Callable[[str], int] = field(default=lambda text: ring_hash(text))
    """Returns the position of a text on the ring; every member must use the same."""

    def __post_init__(self) -> None:
        if self.virtual_nodes < 1:
            raise ValueError(f"virtual_nodes must be at least 1, got {self.virtual_nodes}")

    def share(self, own_id: str, queues: Queues, client_ids: Sequence[str]) -> Share:
        ring = {
            self.hash_text(f"{client_id}-{node}"): client_id
            for client_id in client_ids
            for node in range(self.virtual_nodes)
        }
        hashes = sorted(ring)
        shared = []
        for queue in queues:
            index = bisect.bisect_left(hashes, self.hash_text(java_text(queue)))
            if ring[hashes[index % len(hashes)]] == own_id:
                shared.append(queue)
        return tuple(shared)


def ring_hash(text: str) -> int:
    """A hash on the ring: the first four bytes of the text's MD5, unsigned."""
    digest = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:_HASH_SIZE], "big")


def java_text(queue: QueueId) -> str:
    """A queue as Java's client prints and hashes it."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker}, queueId={queue.index}]"


def _utf16(text: str) -> bytes:
    """A sort key that orders as Java compares text."""
    return text.encode("utf-16-be", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Change:
    """The queues to give up first, and to own then. Both sorted."""

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

    A broker lists no members before it has our heartbeat. Then nothing changes: giving queues up
    would only repeat messages.
    """
    if not members:
        return Change((), ())
    return change_between(current, allocate(strategy, own_id, queues, members))


def change_between(current: Collection[QueueId], wanted: Iterable[QueueId]) -> Change:
    """The change from owned to wanted queues; broadcasting members want every queue."""
    target = set(wanted)
    gained = sort_queues(queue for queue in target if queue not in current)
    lost = sort_queues(queue for queue in current if queue not in target)
    return Change(tuple(gained), tuple(lost))
