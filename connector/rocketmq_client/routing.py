"""Addresses of brokers, as name servers last published them, and the replicas that serve pulls.

A broker that is missing from a new route keeps its old address: it may only be unavailable.

A master suggests a replica when the messages of a pull are no longer in its memory. Messages of the
replica are taken; any other answer of it proves nothing, since it may lag, and the master is asked.
A replica that failed is not asked for a while, though masters still suggest it: every pull would
wait for it. All of it is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rocketmq_client.loss import Standing
from rocketmq_client.retry import Backoff
from rocketmq_client.retry_schedules import REPLICA
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import MASTER_ID, PERMISSION_WRITE, BrokerAddresses, QueueId, Route
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import PullMessages, PullReplies, PullReply, PullStatus

# A route without a master is asked for again after this time.
MASTER_LOOKUP_INTERVAL_MS: Final = 2_000
_BEING_REMOVED = "MESSAGE_WAS_REMOVING"


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

    A broker that is missing from the route of a known topic is only unavailable. Name servers list
    a replica that acts as master as one, but without the permission to write.
    """
    if route is None:
        return Standing.TOPIC_GONE
    for queues in route.queue_sets:
        if queues.broker == queue.broker:
            if queue.index >= queues.read_queue_count:
                return Standing.QUEUE_GONE
            is_open = queues.permission & PERMISSION_WRITE
            return Standing.SERVED if is_open else Standing.PROVISIONAL
    return Standing.PROVISIONAL


class ReplicaSelection:
    """Broker ids by queue; other queues are pulled from their masters."""

    def __init__(self) -> None:
        self._ids: dict[QueueId, int] = {}
        self._shunned: dict[str, tuple[int, Backoff]] = {}
        """Addresses of replicas that failed, and until when they are not asked."""

    def broker_id(self, request: Request[Reply]) -> int:
        """Return the broker id to ask. Held pulls go to the master: messages arrive there first."""
        if (
            not isinstance(request, PullMessages)
            or request.suspend_ms
            or request.commit is not None
        ):
            return MASTER_ID
        return self._ids.get(request.queue, MASTER_ID)

    def learn(self, request: Request[Reply], result: Reply | RocketMQError) -> None:
        """Take over an answer's suggestion for the next pull."""
        if isinstance(request, PullMessages) and isinstance(result, PullReplies):
            for answer in result.answers:
                self.learn(request, answer)
        if isinstance(request, PullMessages) and isinstance(result, PullReply):
            if result.suggested_broker_id == MASTER_ID:
                self._ids.pop(request.queue, None)
            else:
                self._ids[request.queue] = result.suggested_broker_id

    def is_shunned(self, address: str, now_ms: int) -> bool:
        """Whether the replica must not be asked now."""
        until_ms, _ = self._shunned.get(address, (0, None))
        return now_ms < until_ms

    def shun(self, address: str, now_ms: int) -> None:
        """Note a failed replica. Its requests fail together, and count as one failure."""
        if not self.is_shunned(address, now_ms):
            _, backoff = self._shunned.get(address) or (0, Backoff(REPLICA))
            self._shunned[address] = now_ms + backoff.next_delay_ms(), backoff

    def trust(self, address: str) -> None:
        """Note a useful answer of the replica."""
        self._shunned.pop(address, None)

    def forget(self, request: Request[Reply]) -> None:
        """Return to the master for this queue."""
        if isinstance(request, PullMessages):
            self._ids.pop(request.queue, None)


def is_useful(request: Request[Reply], result: Reply | RocketMQError) -> bool:
    """Whether a replica's answer is true, however far the replica is behind its master."""
    if isinstance(result, PullReplies):
        return all(getattr(one, "status", None) is PullStatus.FOUND for one in result.answers)
    if not isinstance(request, PullMessages) or not isinstance(result, PullReply):
        return False
    if result.status is PullStatus.FOUND:
        return True
    resumes = result.next_begin > request.start and result.remark != _BEING_REMOVED
    return result.status is PullStatus.NO_MATCHED_MESSAGE and resumes


def is_failure(result: Reply | RocketMQError) -> bool:
    """Whether a replica answered nothing but errors."""
    if isinstance(result, PullReplies):
        return all(isinstance(one, RocketMQError) for one in result.answers)
    return isinstance(result, RocketMQError)
