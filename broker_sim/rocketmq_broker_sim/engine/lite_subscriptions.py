"""Which clients want which lite topics, and which of these may have something for them.

A light queue is `ready` for a client from when it grows, or is subscribed to, until a pop found it
empty; blocked ones stay ready. So a pop looks at what may have messages, however many lite topics
there are. All of it is in memory, as in RocketMQ: clients say all they want every half minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from rocketmq_wire.lite_topics import parent_of

SUBSCRIPTIONS_MAX: Final = 100_000
"""Of all clients: maxLiteSubscriptionCount in RocketMQ."""
EXPIRY_MS: Final = 3 * 60_000
"""What a client wanted is forgotten when it has not said so for this long."""


@dataclass(eq=False, slots=True)
class LiteClient:
    """One consumer of lite topics."""

    client_id: str
    group: str
    parent: str
    peer_key: int
    wants_all: bool = False
    names: dict[str, None] = field(default_factory=dict)
    """The light queues that it asked for."""
    ready: dict[str, None] = field(default_factory=dict)
    """Those that may have something, the one looked at last at the end."""
    updated_ms: int = 0


class LiteSubscriptions:
    """All clients, by id and by light queue."""

    def __init__(self, *, count_max: int = SUBSCRIPTIONS_MAX) -> None:
        self._clients: dict[str, LiteClient] = {}
        self._by_name: dict[str, dict[LiteClient, None]] = {}
        self._wanting_all: dict[str, dict[LiteClient, None]] = {}
        self._count_max = count_max
        self.count = 0
        """(client, light queue) pairs."""

    def has_room(self, count: int) -> bool:
        """True if so many more may be wanted."""
        return self.count + count <= self._count_max

    def find(self, client_id: str) -> LiteClient | None:
        return self._clients.get(client_id)

    def client(self, client_id: str, group: str, parent: str, *, peer_key: int) -> LiteClient:
        """The client, made anew when it is another group's now."""
        client = self._clients.get(client_id)
        if client is not None and (client.group, client.parent) != (group, parent):
            self.forget(client_id)
            client = None
        if client is None:
            client = self._clients[client_id] = LiteClient(client_id, group, parent, peer_key)
        client.peer_key = peer_key
        return client

    def add(self, client: LiteClient, name: str) -> bool:
        """Have a client get a light queue; False if it had it."""
        if name in client.names:
            return False
        client.names[name] = client.ready[name] = None
        self._by_name.setdefault(name, {})[client] = None
        self.count += 1
        return True

    def remove(self, client: LiteClient, name: str) -> bool:
        """Have a client lose a light queue; False if it had it not."""
        if name not in client.names:
            return False
        del client.names[name]
        client.ready.pop(name, None)
        clients = self._by_name[name]
        del clients[client]
        if not clients:
            del self._by_name[name]
        self.count -= 1
        return True

    def want_all(self, client: LiteClient, existing: Iterable[str]) -> None:
        """Have a client get every light queue of its parent, now and later."""
        if not client.wants_all:
            client.wants_all = True
            self._wanting_all.setdefault(client.parent, {})[client] = None
            client.ready.update(dict.fromkeys(existing))

    def forget(self, client_id: str) -> None:
        """A client wants nothing any more."""
        client = self._clients.pop(client_id, None)
        if client is None:
            return
        for name in list(client.names):
            self.remove(client, name)
        if client.wants_all:
            clients = self._wanting_all[client.parent]
            del clients[client]
            if not clients:
                del self._wanting_all[client.parent]

    def forget_peer(self, peer_key: int) -> None:
        """A connection closed."""
        for client in [each for each in self._clients.values() if each.peer_key == peer_key]:
            self.forget(client.client_id)

    def forget_queue(self, name: str) -> None:
        """A lite topic has expired, or its parent was deleted."""
        for client in list(self._by_name.get(name, ())):
            self.remove(client, name)
        for client in self._wanting_all.get(parent_of(name), ()):
            client.ready.pop(name, None)

    def expire(self, now_ms: int) -> None:
        """Forget whoever has not been heard of."""
        for client in list(self._clients.values()):
            if now_ms - client.updated_ms > EXPIRY_MS:
                self.forget(client.client_id)

    def owners(self, name: str, group: str) -> list[LiteClient]:
        """The clients of a group that get a light queue."""
        return [client for client in self._by_name.get(name, ()) if client.group == group]

    def grown(self, name: str) -> Iterator[LiteClient]:
        """The clients for which a light queue is ready from now on."""
        for client in (*self._by_name.get(name, ()), *self._wanting_all.get(parent_of(name), ())):
            client.ready[name] = None
            yield client

    def freed(self, name: str, group: str) -> Iterator[LiteClient]:
        """The clients of a group whose light queue is not blocked any more."""
        if name not in self._by_name and parent_of(name) not in self._wanting_all:
            return
        yield from (client for client in self.grown(name) if client.group == group)
