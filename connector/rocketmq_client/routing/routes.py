"""Addresses of brokers, as the name servers last published them: pure.

A broker that is missing from a new route keeps its old address: it may only be unavailable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rocketmq_client.loss import Standing
from rocketmq_wire.model import MASTER_ID, BrokerAddresses, QueueId, Route

# A route without a master is asked for again after this time.
MASTER_LOOKUP_INTERVAL_MS: Final = 2_000


class BrokerDirectory:
    """Addresses by broker name. Suspected ones are looked up again before they are used."""

    def __init__(self, address_map: Mapping[str, str]) -> None:
        self._address_map = dict(address_map)
        self._addresses: dict[str, str] = {}
        self._masterless: dict[str, int] = {}
        """Brokers without a master, and when the name server last listed none."""
        self._replicas: dict[tuple[str, int], str] = {}
        self._suspects: set[str] = set()

    def learn(self, brokers: Iterable[BrokerAddresses], now_ms: int = 0) -> None:
        """Take over the addresses in a route or a cluster answer."""
        for broker in brokers:
            if not broker.addresses:
                continue
            # The master, or the replica with the lowest id, which may serve reads.
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
        """Return the addresses of masters, for processes that reach no name server."""
        return {name: at for name, at in self._addresses.items() if name not in self._masterless}

    def hint(self, addresses: Mapping[str, str]) -> None:
        """Take over addresses from another process, for use while no name server answers."""
        for name, at in addresses.items():
            if name not in self._addresses:
                self._addresses[name] = at
                self._suspects.add(name)

    def trust(self, broker: str) -> None:
        """Note an answer from the broker's address."""
        self._suspects.discard(broker)

    def address(self, broker: str) -> str | None:
        return self._addresses.get(broker)

    def is_replica(self, broker: str) -> bool:
        """Whether the address is a replica's, since there is no master."""
        return broker in self._masterless

    def replica(self, broker: str, broker_id: int) -> str | None:
        """Return the address of the broker's member with an id, if the name server lists it."""
        return self._replicas.get((broker, broker_id))

    def is_settled(self, broker: str, now_ms: int = 0) -> bool:
        """Whether the broker's address can be used without a look-up."""
        masterless_ms = self._masterless.get(broker)
        if masterless_ms is not None and now_ms - masterless_ms >= MASTER_LOOKUP_INTERVAL_MS:
            return False
        return broker in self._addresses and broker not in self._suspects

    def suspect(self, address: str) -> None:
        """Note that no answer comes from the address: it may be out of date."""
        self._suspects |= {name for name, at in self._addresses.items() if at == address}

    def _mapped(self, published: str) -> str:
        if published in self._address_map:
            return self._address_map[published]
        host, _, port = published.rpartition(":")
        if host in self._address_map:
            return f"{self._address_map[host]}:{port}"
        return published


def standing_of(queue: QueueId, route: Route | None) -> Standing:
    """Judge a queue by a fresh route; None means that the name server does not know the topic.

    A broker that is missing from the route of a known topic is only unavailable.
    """
    if route is None:
        return Standing.TOPIC_GONE
    for queues in route.queue_sets:
        if queues.broker == queue.broker:
            is_gone = queue.index >= queues.read_queue_count
            return Standing.QUEUE_GONE if is_gone else Standing.SERVED
    return Standing.SERVED
