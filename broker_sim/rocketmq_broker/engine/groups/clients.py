"""The clients online by group: heartbeats register them, and silence removes them.

As in RocketMQ, the subscriptions belong to the group, not to a member: for each topic the heartbeat
with the largest version wins, and a heartbeat without a topic removes that topic. Members that
consume in order lock their queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import Sender
from rocketmq_wire.limits import (
    CLIENT_ID_SIZE_MAX,
    CLIENTS_SIZE_MAX,
    HEARTBEAT_FILTERS_MAX,
    HEARTBEAT_GROUPS_MAX,
    HEARTBEAT_SUBSCRIPTIONS_MAX,
)
from rocketmq_wire.model import SYSTEM_NAME_SIZE_MAX, ConsumerInfo, Subscription
from rocketmq_wire.requests.groups import (
    Connection,
    Heartbeat,
    LockQueues,
    QueuesReply,
    UnlockQueues,
    UnregisterClient,
)
from rocketmq_wire.requests.permissions import Permission

LEASE_MS: Final = 60_000
"""How long a member may consume a queue in order before it must renew its lock."""


MemberKey = tuple[str, str]
"""Client id and access key: ids are no secret, so one account cannot take another's place."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A client in a group, as its newest heartbeat reported it."""

    connection: Connection
    peer_key: int
    seen_ms: int
    sender: Sender | None = None
    """The account of that heartbeat; None if it may do everything."""
    size: int = 0
    """The memory of this registration and its subscriptions, estimated."""

    @property
    def key(self) -> MemberKey:
        return self.connection.client_id, self.sender.access_key if self.sender else ""


class RegisteredSubscription(NamedTuple):
    """A group's subscription to a topic; a larger version is newer."""

    subscription: Subscription
    version: int


@dataclass(slots=True)
class Group:
    """The members of a group online, and what they subscribe to."""

    members: dict[MemberKey, Registration] = field(default_factory=dict)
    subscriptions: dict[str, RegisteredSubscription] = field(default_factory=dict)
    info: ConsumerInfo | None = None
    """How the group consumes, from its newest heartbeat; None for producers."""

    def connections(self) -> tuple[Connection, ...]:
        return tuple(member.connection for _, member in sorted(self.members.items()))


_EMPTY: Final = Group()
_Entry = tuple[bool, str, MemberKey]
"""True for a consumer, its group, and its key in there."""
_STEP_MS_MIN: Final = 30_000
_MEMBER_SIZE: Final = 1_024
_SUBSCRIPTION_SIZE: Final = 512


def check_heartbeat(request: Heartbeat) -> None:
    """Refuse (1) a heartbeat of more groups, subscriptions or text than a client has."""
    subscriptions = [one for info in request.consumers for one in info.subscriptions]
    for what, count, count_max in (
        ("client id of length", len(request.client_id), CLIENT_ID_SIZE_MAX),
        ("number of producer groups", len(request.producer_groups), HEARTBEAT_GROUPS_MAX),
        ("number of consumer groups", len(request.consumers), HEARTBEAT_GROUPS_MAX),
        ("number of subscriptions", len(subscriptions), HEARTBEAT_SUBSCRIPTIONS_MAX),
        ("size of filters", sum(len(one[1]) for one in subscriptions), HEARTBEAT_FILTERS_MAX),
        (
            "group name of length",
            max(map(len, request.producer_groups), default=0),
            SYSTEM_NAME_SIZE_MAX,
        ),
    ):
        if count > count_max:
            raise refusals.heartbeat_illegal(f"a {what} {count}, over {count_max}")


class Clients:
    def __init__(self, *, expiry_ms: int) -> None:
        self._expiry_ms = expiry_ms
        self._consumers: dict[str, Group] = {}
        self._producers: dict[str, Group] = {}
        self._changed: dict[str, None] = {}
        """Consumer groups whose members do not know of a change yet."""
        self._of_peer: dict[int, dict[_Entry, int]] = {}
        """The registrations by each connection, with their sizes."""
        self._size = 0
        self._expired_ms = 0
        """The time of the last call of `expire`."""

    def register_consumer(self, info: ConsumerInfo, member: Registration) -> None:
        """Refuses (1) a registration for which there is no memory."""
        texts = sum(len(topic) + len(expression) for topic, expression, *_ in info.subscriptions)
        size = _MEMBER_SIZE + texts + _SUBSCRIPTION_SIZE * len(info.subscriptions)
        known = self._enter(self._consumers, info.group, replace(member, size=size))
        group = self._consumers[info.group]
        group.info = info
        topics = {topic for topic, *_ in info.subscriptions}
        is_same = known is not None and known.peer_key == member.peer_key
        if not is_same or topics != group.subscriptions.keys():
            self._changed[info.group] = None
        for left_out in [topic for topic in group.subscriptions if topic not in topics]:
            del group.subscriptions[left_out]
        for topic, expression, kind, version in info.subscriptions:
            registered = group.subscriptions.get(topic)
            if registered is None or version > registered.version:
                group.subscriptions[topic] = RegisteredSubscription(
                    Subscription(expression, kind), version
                )

    def register_producer(self, group: str, member: Registration) -> None:
        """Refuses (1) a registration for which there is no memory."""
        self._enter(self._producers, group, replace(member, size=_MEMBER_SIZE))

    def _enter(
        self, table: dict[str, Group], name: str, member: Registration
    ) -> Registration | None:
        """Enter a registration; returns the one that it replaces."""
        members = table[name].members if name in table else {}
        known = members.get(member.key)
        grown = member.size - (known.size if known is not None else 0)
        if grown > 0 and self._size + grown > CLIENTS_SIZE_MAX:
            raise refusals.clients_too_many()
        if known is not None:
            self._leave(table, name, known)
        table.setdefault(name, Group()).members[member.key] = member
        entries = self._of_peer.setdefault(member.peer_key, {})
        entries[table is self._consumers, name, member.key] = member.size
        self._size += member.size
        return known

    def _leave(self, table: dict[str, Group], name: str, member: Registration) -> None:
        entries = self._of_peer[member.peer_key]
        self._size -= entries.pop((table is self._consumers, name, member.key))
        if not entries:
            del self._of_peer[member.peer_key]

    def unregister(self, request: UnregisterClient, access_key: str = "") -> None:
        """Remove an account's client from the groups that it names."""
        for table, group in (
            (self._producers, request.producer_group),
            (self._consumers, request.consumer_group),
        ):
            if group is not None and group in table:
                self._remove(table, group, [(request.client_id, access_key)])

    def forget_peer(self, peer_key: int) -> None:
        """Forget the clients of a closed connection."""
        for is_consumer, name, key in list(self._of_peer.get(peer_key, ())):
            self._remove(self._consumers if is_consumer else self._producers, name, [key])

    def expire(self, now_ms: int) -> None:
        """Forget the clients whose last heartbeat is too old; called every few seconds.

        If much more time has passed since the last call, the clock stepped or the broker stood
        still: then the clients get their time again.
        """
        is_stepped = self._expired_ms and now_ms - self._expired_ms > _STEP_MS_MIN
        self._expired_ms = now_ms
        if is_stepped:
            for group in (*self._producers.values(), *self._consumers.values()):
                for key, member in group.members.items():
                    group.members[key] = replace(member, seen_ms=now_ms)
        self._drop(lambda member: now_ms - member.seen_ms > self._expiry_ms)

    def changes(self) -> Iterator[tuple[str, int]]:
        """The consumer groups that changed, each with a connection of a present member.

        A change is a member that joined, reconnected or left, or another set of topics.
        """
        while self._changed:
            name, _ = self._changed.popitem()
            members = self._consumers.get(name, _EMPTY).members.values()
            yield from ((name, key) for key in {member.peer_key for member in members})

    def consumer_ids(self, group: str) -> tuple[str, ...]:
        """The members online, sorted, because every member must get the same order."""
        return tuple(self.consumer_peers(group))

    def consumer_peers(self, group: str) -> dict[str, int]:
        """The connections of the members online by client id, sorted."""
        members = sorted(self._consumers.get(group, _EMPTY).members.items())
        return {client_id: member.peer_key for (client_id, _), member in members}

    def producer_peers(self, group: str, wanted: Sequence[Permission] = ()) -> tuple[int, ...]:
        """The connections of a group's producers online that have the permissions."""
        members = self._producers.get(group, _EMPTY).members.values()
        allowed = (one for one in members if one.sender is None or one.sender.may(wanted))
        return tuple(sorted({one.peer_key for one in allowed}))

    def consumer_groups(self) -> tuple[str, ...]:
        return tuple(sorted(self._consumers))

    def consumers(self, group: str) -> Group:
        """A group's consumers online."""
        return self._consumers.get(group, _EMPTY)

    def producers(self, group: str) -> Group:
        """A group's producers online."""
        return self._producers.get(group, _EMPTY)

    def subscriptions(self, group: str) -> Mapping[str, RegisteredSubscription]:
        """The subscriptions of the group's members online, by topic."""
        return self._consumers.get(group, _EMPTY).subscriptions

    def subscription(self, group: str, topic: str) -> RegisteredSubscription | None:
        return self.subscriptions(group).get(topic)

    def _drop(self, is_gone: Callable[[Registration], bool]) -> None:
        for table in (self._producers, self._consumers):
            for name, group in list(table.items()):
                gone = [key for key, one in group.members.items() if is_gone(one)]
                self._remove(table, name, gone)

    def _remove(self, table: dict[str, Group], name: str, keys: list[MemberKey]) -> None:
        members = table[name].members
        known = [key for key in keys if key in members]
        for key in known:
            self._leave(table, name, members.pop(key))
        if known and table is self._consumers:
            self._changed[name] = None
        if not members:
            del table[name]


@dataclass(slots=True)
class _Lease:
    client_id: str
    renewed_ms: int


class QueueLocks:
    """Leases by group and queue. They are not saved: a restart frees every queue."""

    def __init__(self) -> None:
        self._leases: dict[tuple[str, str, int], _Lease] = {}

    def lock(self, request: LockQueues, now_ms: int) -> QueuesReply:
        """Lock queues that are free, expired or the member's own; returns the locked ones."""
        owned = []
        for queue in request.queues:
            key = (request.group, queue.topic, queue.index)
            lease = self._leases.get(key)
            is_own = lease is not None and lease.client_id == request.client_id
            if lease is None or is_own or now_ms - lease.renewed_ms > LEASE_MS:
                self._leases[key] = _Lease(request.client_id, now_ms)
                owned.append(queue)
        return QueuesReply(tuple(owned))

    def unlock(self, request: UnlockQueues) -> None:
        """Release the member's own leases; those of others stay."""
        for queue in request.queues:
            key = (request.group, queue.topic, queue.index)
            lease = self._leases.get(key)
            if lease is not None and lease.client_id == request.client_id:
                del self._leases[key]

    def expire(self, now_ms: int) -> None:
        """Drop leases that no member renews, so that the table does not grow for ever."""
        leases = self._leases.items()
        self._leases = {key: one for key, one in leases if now_ms - one.renewed_ms <= LEASE_MS}
