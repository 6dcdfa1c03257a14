"""Which address serves which broker, as the name servers last said: pure.

A broker that is missing from a new route keeps its old address: it may only be away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rocketmq_client.loss import Standing
from rocketmq_wire.model import MASTER_ID, BrokerAddresses, QueueId, Route

# A master that was away is looked for again this long after the last look.
MASTER_LOOKUP_INTERVAL_MS: Final = 2_000


class BrokerDirectory:
    """Addresses by broker name; suspects are to be looked up again before they are used."""

    def __init__(self, address_map: Mapping[str, str]) -> None:
        self._address_map = dict(address_map)
        self._addresses: dict[str, str] = {}
        self._masterless: dict[str, int] = {}
        """When the name server last said so."""
        self._replicas: dict[tuple[str, int], str] = {}
        self._suspects: set[str] = set()

    def learn(self, brokers: Iterable[BrokerAddresses], now_ms: int = 0) -> None:
        """Take over what a route or a cluster answer says."""
        for broker in brokers:
            if not broker.addresses:
                continue
            # The master when it is up, else the replica with the lowest id: it may serve reads.
            published = broker.addresses.get(MASTER_ID, broker.addresses[min(broker.addresses)])
            self._addresses[broker.name] = self._mapped(published)
            self._suspects.discard(broker.name)
            if MASTER_ID in broker.addresses:
                self._masterless.pop(broker.name, None)
            else:
                self._masterless[broker.name] = now_ms
            self._replicas = {
                **{key: at for key, at in self._replicas.items() if key[0] != broker.name},
                **{(broker.name, id_): self._mapped(at) for id_, at in broker.addresses.items()},
            }

    def broker_addresses(self) -> dict[str, str]:
        """Where the masters are, for somebody who has no name server to ask."""
        return {name: at for name, at in self._addresses.items() if name not in self._masterless}

    def hint(self, addresses: Mapping[str, str]) -> None:
        """Where somebody else found brokers: of use when no name server answers."""
        for name, at in addresses.items():
            if name not in self._addresses:
                self._addresses[name] = at
                self._suspects.add(name)

    def trust(self, broker: str) -> None:
        """It answered where it was looked for."""
        self._suspects.discard(broker)

    def address(self, broker: str) -> str | None:
        """Where the broker was last, or None if no name server ever said."""
        return self._addresses.get(broker)

    def is_replica(self, broker: str) -> bool:
        """True when the address is that of a replica, since the master is away."""
        return broker in self._masterless

    def replica(self, broker: str, broker_id: int) -> str | None:
        """Where the broker's member of that id is, if the name server lists one."""
        return self._replicas.get((broker, broker_id))

    def is_settled(self, broker: str, now_ms: int = 0) -> bool:
        """True unless the broker must be looked up first."""
        masterless_ms = self._masterless.get(broker)
        if masterless_ms is not None and now_ms - masterless_ms >= MASTER_LOOKUP_INTERVAL_MS:
            return False
        return broker in self._addresses and broker not in self._suspects

    def suspect(self, address: str) -> None:
        """Nobody answers there: what was said about the address may be out of date."""
        self._suspects |= {name for name, at in self._addresses.items() if at == address}

    def _mapped(self, published: str) -> str:
        if published in self._address_map:
            return self._address_map[published]
        host, _, port = published.rpartition(":")
        if host in self._address_map:
            return f"{self._address_map[host]}:{port}"
        return published


def standing_of(queue: QueueId, route: Route | None) -> Standing:
    """What a fresh route says about a queue; None is a topic that the name server does not know.

    A broker that is missing from the route of a known topic is merely away.
    """
    if route is None:
        return Standing.TOPIC_GONE
    for queues in route.queue_sets:
        if queues.broker == queue.broker:
            is_gone = queue.index >= queues.read_queue_count
            return Standing.QUEUE_GONE if is_gone else Standing.SERVED
    return Standing.SERVED
