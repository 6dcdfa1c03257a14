"""Which address serves which broker, as the name servers last said: pure.

A broker that is missing from a new route keeps its old address: it may only be away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocketmq_client.loss import Standing
from rocketmq_wire.model import MASTER_ID, BrokerAddresses, QueueId, Route


class BrokerDirectory:
    """Addresses by broker name; suspects are to be looked up again before they are used."""

    def __init__(self, address_map: Mapping[str, str]) -> None:
        self._address_map = dict(address_map)
        self._addresses: dict[str, str] = {}
        self._masterless: set[str] = set()
        self._suspects: set[str] = set()

    def learn(self, brokers: Iterable[BrokerAddresses]) -> None:
        """Take over what a route or a cluster answer says."""
        for broker in brokers:
            if not broker.addresses:
                continue
            # The master when it is up, else the replica with the lowest id: it may serve reads.
            published = broker.addresses.get(MASTER_ID, broker.addresses[min(broker.addresses)])
            self._addresses[broker.name] = self._mapped(published)
            self._suspects.discard(broker.name)
            if MASTER_ID in broker.addresses:
                self._masterless.discard(broker.name)
            else:
                self._masterless.add(broker.name)

    def address(self, broker: str) -> str | None:
        """Where the broker was last, or None if no name server ever said."""
        return self._addresses.get(broker)

    def is_replica(self, broker: str) -> bool:
        """True when the address is that of a replica, since the master is away."""
        return broker in self._masterless

    def is_settled(self, broker: str) -> bool:
        """True unless the broker must be looked up first."""
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
