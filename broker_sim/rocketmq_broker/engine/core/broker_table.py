"""A name server's table: its own broker, and the brokers that have registered with it.

A registration adds its topics to those that the broker registered before, as brokers of RocketMQ
register a new topic alone. A topic leaves the table with its broker, or by a tool's request.
A broker leaves it if it unregisters, if its connection closes, or if it is silent for too long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.limits import (
    REGISTERED_BROKERS_MAX,
    REGISTERED_TOPICS_MAX,
    REPLICAS_MAX,
    ROUTE_QUEUES_MAX,
)
from rocketmq_wire.model import (
    MASTER_ID,
    PERMISSION_READ,
    PERMISSION_WRITE,
    SYSTEM_NAME_SIZE_MAX,
    BrokerAddresses,
    ClusterInfo,
    QueueId,
    QueueSet,
    Route,
    TopicConfig,
)
from rocketmq_wire.requests.registration import (
    BrokerNode,
    DataVersion,
    RegisterBroker,
    RegisterReply,
)

EXPIRY_MS: Final = 120_000
"""As in RocketMQ; brokers register every 30 s."""
NO_ROUTE: Final = Route((), ())
_EXPIRY_MS_MAX: Final = 3_600_000


class ListedBroker(Protocol):
    """A broker in routes: its own one, or a registered one."""

    def addresses(self, peer: Peer) -> BrokerAddresses: ...

    def topics(self) -> Collection[str]:
        """The topics to list."""
        ...

    def queue_set(self, topic: str) -> QueueSet | None:
        """The broker's queues of a topic."""
        ...

    def set_write_permission(self, *, may_write: bool) -> int:
        """Override the topics' write permissions; returns the number of topics."""
        ...


@dataclass(slots=True)
class _Node:
    """A process of a registered broker: its master or a replica."""

    address: str
    version: DataVersion
    replication_address: str
    expiry_ms: int
    heard_ms: int
    peer_key: int
    """The connection that it registered by."""


class RegisteredBroker:
    """A broker name with its processes by id, and its topics."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cluster = ""
        self.nodes: dict[int, _Node] = {}
        self.queue_sets: dict[str, QueueSet] = {}

    def addresses(self, peer: Peer) -> BrokerAddresses:
        del peer
        found = {id: self.nodes[id].address for id in sorted(self.nodes)}
        return BrokerAddresses(self.name, self.cluster, found)

    def topics(self) -> Collection[str]:
        return self.queue_sets

    def queue_set(self, topic: str) -> QueueSet | None:
        return self.queue_sets.get(topic)

    def set_write_permission(self, *, may_write: bool) -> int:
        """Valid until the broker registers another version of its topics."""
        for topic, queues in self.queue_sets.items():
            permission = queues.permission & ~PERMISSION_WRITE
            if may_write:
                permission = PERMISSION_READ | PERMISSION_WRITE
            self.queue_sets[topic] = replace(queues, permission=permission)
        return len(self.queue_sets)

    def put(self, configs: Iterable[TopicConfig], *, is_changed: bool) -> None:
        """Add topics; those that are known are replaced only if `is_changed`."""
        for config in configs:
            if is_changed or config.name not in self.queue_sets:
                self.queue_sets[config.name] = QueueSet(
                    self.name,
                    config.read_queue_count,
                    config.write_queue_count,
                    config.permission,
                    config.sys_flag,
                )


class BrokerTable:
    """The brokers by name. Times are arguments; the table is not thread-safe."""

    def __init__(self, own_name: str, own: ListedBroker) -> None:
        self._own_name = own_name
        self._own = own
        self._registered: dict[str, RegisteredBroker] = {}
        self._learned: dict[str, Route] | None = None
        """The last route from another name server; None if none was asked."""

    # --- routes -------------------------------------------------------------------------------

    def route(self, topic: str, peer: Peer) -> Route:
        """The route of a topic. Refuses (17) one that no broker has."""
        found = [
            (queues, broker.addresses(peer))
            for broker in self._seen_by(peer)
            if (queues := broker.queue_set(topic)) is not None
        ]
        if not found:
            raise refusals.route_missing(topic)
        queue_sets, brokers = zip(*found, strict=True)
        return Route(queue_sets, brokers)

    def cluster(self, peer: Peer) -> ClusterInfo:
        brokers = tuple(broker.addresses(peer) for broker in self._seen_by(peer))
        clusters: dict[str, tuple[str, ...]] = {}
        for broker in brokers:
            clusters[broker.cluster] = (*clusters.get(broker.cluster, ()), broker.name)
        return ClusterInfo(brokers, clusters)

    def topics(self, peer: Peer) -> tuple[str, ...]:
        """The topics of all brokers, sorted."""
        return tuple(sorted({topic for broker in self._seen_by(peer) for topic in broker.topics()}))

    def _seen_by(self, peer: Peer) -> Iterator[ListedBroker]:
        """The brokers by name; a client that reaches only this broker sees no other."""
        if not peer.reaches_all_brokers:
            yield self._own
            return
        for name in sorted({self._own_name, *self._registered}):
            yield self._own if name == self._own_name else self._registered[name]

    def readable_queues(self, topic: str, peer: Peer) -> tuple[QueueId, ...]:
        """The queues of a topic that may be read, sorted; empty if no broker has it."""
        if self._learned is not None:
            return self._learned.get(topic, NO_ROUTE).readable_queues(topic)
        try:
            return self.route(topic, peer).readable_queues(topic)
        except BrokerError:
            return ()

    def learn(self, topic: str, route: Route) -> None:
        """Keep what another name server answered, for `readable_queues`."""
        self._learned = {topic: route}

    # --- tools --------------------------------------------------------------------------------

    def set_write_permission(self, name: str, *, may_write: bool) -> int:
        """Override a broker's write permissions; returns the number of its topics."""
        broker = self._own if name == self._own_name else self._registered.get(name)
        return broker.set_write_permission(may_write=may_write) if broker is not None else 0

    def forget_topic(self, topic: str) -> None:
        """Forget a topic of the registered brokers; the own broker's is not kept here."""
        for broker in self._registered.values():
            broker.queue_sets.pop(topic, None)

    # --- brokers ------------------------------------------------------------------------------

    def register(self, request: RegisterBroker, peer_key: int, now_ms: int) -> RegisterReply:
        """Add a broker, or topics of it. Refuses (1) what is over a limit, and a name in use."""
        node = request.node
        broker = self._registered.get(node.name) or RegisteredBroker(node.name)
        known = broker.nodes.get(node.id)
        self._check(request, broker, known)
        # A replica that has become the master has another id at the same address.
        broker.nodes = {i: n for i, n in broker.nodes.items() if n.address != node.address}
        broker.cluster = node.cluster
        broker.nodes[node.id] = _Node(
            node.address,
            request.version,
            request.replication_address,
            min(request.expiry_ms or EXPIRY_MS, _EXPIRY_MS_MAX),
            now_ms,
            peer_key,
        )
        if node.id == min(broker.nodes):
            is_changed = known is None or known.version != request.version
            broker.put(request.configs, is_changed=is_changed)
        self._registered[node.name] = broker
        master = broker.nodes.get(MASTER_ID)
        if node.id == MASTER_ID or master is None:
            return RegisterReply()
        return RegisterReply(master.replication_address, master.address)

    def register_topic(self, topic: str, queue_sets: Sequence[QueueSet]) -> None:
        """Add a topic of registered brokers. As in RocketMQ, others are ignored."""
        if len(queue_sets) > REGISTERED_BROKERS_MAX:
            raise refusals.registration_illegal(f"over {REGISTERED_BROKERS_MAX} brokers")
        for queues in queue_sets:
            broker = self._registered.get(queues.broker)
            if broker is not None:
                _check_topic(topic, queues.read_queue_count, queues.write_queue_count)
                self._check_room(broker, [topic])
                broker.queue_sets[topic] = queues

    def heard(self, node: BrokerNode, now_ms: int) -> DataVersion | None:
        """Note that a broker is alive; returns its version, None if it is not registered."""
        broker = self._registered.get(node.name)
        known = broker.nodes.get(node.id) if broker is not None else None
        if known is None or known.address != node.address:
            return None
        known.heard_ms = now_ms
        return known.version

    def unregister(self, node: BrokerNode) -> None:
        """Take a process of a broker out of the table, and with the last one the broker."""
        self._remove(lambda name, each: name == node.name and each.address == node.address)

    def forget_peer(self, peer_key: int) -> None:
        """Take out what registered by a connection that is closed."""
        self._remove(lambda _, each: each.peer_key == peer_key)

    def expire(self, now_ms: int) -> None:
        """Take out the silent ones."""
        self._remove(lambda _, each: now_ms - each.heard_ms > each.expiry_ms)

    def _remove(self, is_gone: Callable[[str, _Node], bool]) -> None:
        for name, broker in list(self._registered.items()):
            broker.nodes = {i: each for i, each in broker.nodes.items() if not is_gone(name, each)}
            if not broker.nodes:
                del self._registered[name]

    # --- limits -------------------------------------------------------------------------------

    def _check(
        self, request: RegisterBroker, broker: RegisteredBroker, known: _Node | None
    ) -> None:
        node = request.node
        for name in (node.name, node.cluster, node.address):
            if not 0 < len(name) <= SYSTEM_NAME_SIZE_MAX:
                raise refusals.registration_illegal(f"the name {name[:40]!r} is empty or too long")
        if node.name == self._own_name:
            raise refusals.broker_name_taken(node.name, "the name server's own broker")
        # Two brokers of one name would take turns in the routes, and clients would mix up their
        # messages. A controller that changes the master raises its state.
        is_moved = known is not None and known.address != node.address
        if known is not None and is_moved and request.version.state <= known.version.state:
            raise refusals.broker_name_taken(node.name, known.address)
        if known is None:
            if len(request.configs) == 1:
                # As in RocketMQ: a route would lack this broker's queues of all other topics.
                raise refusals.registration_illegal(
                    "the first registration of a broker must have all topics"
                )
            if len(self._registered) >= REGISTERED_BROKERS_MAX and not broker.nodes:
                raise refusals.registration_illegal(f"over {REGISTERED_BROKERS_MAX} brokers")
            if len(broker.nodes) >= REPLICAS_MAX:
                raise refusals.registration_illegal(f"over {REPLICAS_MAX} replicas")
        for config in request.configs:
            _check_topic(config.name, config.read_queue_count, config.write_queue_count)
        self._check_room(broker, [config.name for config in request.configs])

    def _check_room(self, broker: RegisteredBroker, topics: Iterable[str]) -> None:
        count = sum(len(each.queue_sets) for each in self._registered.values())
        count += sum(topic not in broker.queue_sets for topic in topics)
        if count > REGISTERED_TOPICS_MAX:
            raise refusals.registration_illegal(
                f"over {REGISTERED_TOPICS_MAX} topics of all brokers"
            )


def _check_topic(topic: str, *queue_counts: int) -> None:
    if not 0 < len(topic) <= SYSTEM_NAME_SIZE_MAX:
        raise refusals.registration_illegal(f"the topic {topic[:40]!r} is empty or too long")
    if not all(0 <= count <= ROUTE_QUEUES_MAX for count in queue_counts):
        raise refusals.registration_illegal(f"topic {topic} has {max(queue_counts)} queues")
