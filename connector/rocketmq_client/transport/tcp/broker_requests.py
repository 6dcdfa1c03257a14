"""Sends requests to brokers by name, and to the name servers; puts each result into an inbox.

- A broker without a known address, or whose connection failed, is looked up first. Requests that
  wait for one broker share one lookup.
- A pull goes to the replica that the master suggested. If the replica has nothing useful, the pull
  goes to the master.
- A request to the name servers goes to the one that answered last, then to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from rocketmq_client.routing import BrokerDirectory, ReplicaSelection, is_failure, is_useful
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.net.addresses import NameServers
from rocketmq_client.transport.net.clock import ActiveClock
from rocketmq_client.transport.tcp.connection import Call, Role
from rocketmq_client.transport.tcp.exchange import CLOSED_HERE, Exchange
from rocketmq_wire.errors import (
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    RocketMQError,
    TransportError,
    WrongSettingsError,
)
from rocketmq_wire.model import MASTER_ID, QueueId
from rocketmq_wire.requests.brokers import ClusterReply, GetCluster
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import SendBatch, SendMessage
from rocketmq_wire.requests.offsets import CommitOffset, GetCommittedOffset, OffsetReply
from rocketmq_wire.requests.topics import (
    CreateTopic,
    DeleteTopic,
    GetRoute,
    RouteReply,
    TopicStatsReply,
)

# A replica accepts these, but its master overwrites them; its copy of a group's committed offsets
# is seconds old.
_FOR_MASTERS: Final = (
    CommitOffset, CreateTopic, DeleteTopic, GetCommittedOffset, SendBatch, SendMessage
)  # fmt: skip
_MASTER_IS_DOWN: Final = "its master is unavailable, and replicas only serve reads"
# The master can be asked instead, so a replica that stands still is not waited for as a master is.
_REPLICA_SILENT_MS: Final = 5_000
# A lookup before a request takes at most this share of the request's time.
_LOOKUP_SHARE: Final = 2


class BrokerRequests:
    """The requests of one transport. Not thread-safe."""

    def __init__(
        self, settings: ConnectionSettings, clock: ActiveClock, exchange: Exchange
    ) -> None:
        self.directory = BrokerDirectory(settings.address_map)
        self._clock = clock
        self._exchange = exchange
        self._replicas = ReplicaSelection()
        self._name_servers = NameServers(
            settings.name_servers, timeout_ms=settings.connect_timeout_ms
        )
        self._name_server = 0
        """The index of the name server to ask first."""
        self._waiting: dict[str, list[Call]] = {}
        """Calls that wait for the lookup of their broker."""
        self._lookups: dict[Call, str] = {}
        """The broker that each lookup is for."""

    def ask(
        self,
        broker: str | None,
        request: Request[Reply],
        inbox: list[Call],
        *,
        timeout_ms: int,
        slow_ms: int | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Call:
        """Start a request. Its call lands in `inbox` when it is done, perhaps at once.

        See `ClientSession.start` for `slow_ms` and `fields`.
        """
        now_ms = self._clock.now_ms()
        call = Call(broker, request, inbox, timeout_ms, now_ms + timeout_ms, slow_ms, fields)
        if broker is None:
            self._ask_name_server(call)
        elif self.directory.is_settled(broker, now_ms):
            self._ask_broker(call, timeout_ms)
        else:
            self._wait_for_lookup(broker, call)
        return call

    def tell(self, broker: str, request: Request[Reply], *, timeout_ms: int) -> None:
        """Send a oneway request, whose fate stays unknown. `timeout_ms` limits a lookup."""
        now_ms = self._clock.now_ms()
        call = Call(broker, request, [], timeout_ms, now_ms + timeout_ms, is_oneway=True)
        if self.directory.is_settled(broker, now_ms):
            self._tell_master(call)
        else:
            self._wait_for_lookup(broker, call)

    def tell_slave(
        self, broker: str, broker_id: int, request: Request[Reply], fields: Mapping[str, str] | None
    ) -> None:
        """Send a oneway request to a slave that the name server listed."""
        address = self.directory.replica(broker, broker_id)
        if address is not None:
            self._exchange.tell(address, request, fields)

    def step(self, timeout_ms: int) -> None:
        """Send, wait until something happens, and put finished calls into their inboxes."""
        self._exchange.step(timeout_ms)
        for call in self._exchange.take_done():
            self._take_result(call)

    def flush(self) -> None:
        self._exchange.flush()

    def give_up(self, calls: Iterable[Call]) -> None:
        """Forget calls and close their connections: megabytes may be on their way for nothing."""
        calls = list(calls)
        for call in calls:
            call.is_given_up = True
        self._exchange.cut(calls)

    def close(self) -> None:
        """Close every connection; each call in flight ends with an error."""
        self._exchange.close()
        waiting = [call for calls in self._waiting.values() for call in calls]
        lookups = set(self._lookups)
        self._waiting.clear()
        self._lookups.clear()
        for call in self._exchange.take_done():
            if call.result is not None and call not in lookups:
                self._finish(call, call.result)
        for call in waiting:
            self._finish(call, ConnectionLostError(call.broker or "the cluster", CLOSED_HERE))

    # --- asking -------------------------------------------------------------------------------

    def _ask_broker(self, call: Call, timeout_ms: int) -> None:
        """Send to the replica that the master suggested, else to the broker's address."""
        assert call.broker is not None
        address = self.directory.address(call.broker)
        assert address is not None
        if self.directory.is_replica(call.broker):
            if isinstance(call.request, _FOR_MASTERS):
                # The next try looks the broker up again: the master may be back by then.
                self.directory.suspect(address)
                self._finish(call, ConnectError(call.broker, _MASTER_IS_DOWN))
                return
            call.role = Role.LONE_REPLICA
        else:
            call.role = Role.MASTER
            suggested = self._suggested_replica(call.broker, call.request)
            if suggested is not None:
                call.role, address = Role.SUGGESTED_REPLICA, suggested
                timeout_ms = max(1, min(timeout_ms // _LOOKUP_SHARE, _REPLICA_SILENT_MS))
        self._exchange.submit(address, call, timeout_ms=timeout_ms)

    def _suggested_replica(self, broker: str, request: Request[Reply]) -> str | None:
        """The address of the replica to ask instead of the master, if any."""
        suggested_id = self._replicas.broker_id(request)
        if suggested_id == MASTER_ID:
            return None
        address = self.directory.replica(broker, suggested_id)
        if address is None or self._replicas.is_shunned(address, self._clock.now_ms()):
            return None
        return address

    def _tell_master(self, call: Call) -> None:
        assert call.broker is not None
        address = self.directory.address(call.broker)
        if address is not None and not self.directory.is_replica(call.broker):
            self._exchange.tell(address, call.request)

    def _ask_name_server(self, call: Call) -> None:
        """Give the next name server a fair share of the time that is left."""
        try:
            servers = self._name_servers.addresses()
        except ConnectError as error:
            self._take_name_server_result(call, error)
            return
        call.tries_left = call.tries_left or len(servers)
        left_ms = max(1, call.deadline_ms - self._clock.now_ms())
        address = servers[self._name_server % len(servers)]
        self._exchange.submit(address, call, timeout_ms=max(1, left_ms // call.tries_left))

    # --- lookups ------------------------------------------------------------------------------

    def _wait_for_lookup(self, broker: str, call: Call) -> None:
        """Let a call wait for its broker's address; the first one starts the lookup."""
        if broker in self._waiting:
            self._waiting[broker].append(call)
            return
        self._waiting[broker] = [call]
        topic = _topic_of(call.request)
        request: Request[Reply] = GetCluster() if topic is None else GetRoute(topic)
        self._look_up(broker, request, max(1, call.timeout_ms // _LOOKUP_SHARE))

    def _look_up(self, broker: str, request: Request[Reply], timeout_ms: int) -> None:
        lookup = Call(None, request, [], timeout_ms, self._clock.now_ms() + timeout_ms)
        self._lookups[lookup] = broker
        self._ask_name_server(lookup)

    def _take_lookup(self, broker: str, lookup: Call, result: Reply | RocketMQError) -> None:
        """Send the calls that waited for the broker, or ask for the whole cluster first."""
        is_final = isinstance(result, RouteReply | TransportError)
        is_unknown = self.directory.address(broker) is None
        if is_unknown and not is_final and isinstance(lookup.request, GetRoute):
            # The name server has no such topic, but may have the broker.
            self._look_up(broker, GetCluster(), lookup.timeout_ms)
            return
        error = result if isinstance(result, RocketMQError) else None
        for call in self._waiting.pop(broker, ()):
            if call.is_given_up:
                continue
            if call.is_oneway:
                self._tell_master(call)
            elif self.directory.address(broker) is None:
                unknown = ConnectError(broker, "no name server knows this broker")
                self._finish(call, error or unknown)
            else:
                # Even after a failed lookup the last known address is the best there is.
                self._ask_broker(call, max(1, call.deadline_ms - self._clock.now_ms()))

    # --- results ------------------------------------------------------------------------------

    def _take_result(self, call: Call) -> None:
        """Finish a call, or send it to the next server that may know more."""
        result = call.result
        assert result is not None
        if call.is_given_up:
            return
        if call.broker is None:
            self._take_name_server_result(call, result)
        elif call.role is Role.SUGGESTED_REPLICA:
            self._take_replica_result(call, result)
        else:
            self._take_broker_result(call, call.broker, result)

    def _take_broker_result(self, call: Call, broker: str, result: Reply | RocketMQError) -> None:
        if isinstance(result, TransportError):
            self.directory.suspect(call.address)
        else:
            self.directory.trust(broker)
        if call.role is Role.LONE_REPLICA and isinstance(result, OffsetReply | TopicStatsReply):
            result = replace(result, is_current=False)
        self._replicas.learn(call.request, result)
        self._finish(call, result)

    def _take_replica_result(self, call: Call, result: Reply | RocketMQError) -> None:
        """Take what a suggested replica has; ask the master if that is nothing useful."""
        now_ms = self._clock.now_ms()
        if is_failure(result):
            self._replicas.shun(call.address, now_ms)
        if is_useful(call.request, result):
            self._replicas.trust(call.address)
            self._replicas.learn(call.request, result)
            self._finish(call, result)
            return
        self._replicas.forget(call.request)
        if now_ms < call.deadline_ms:
            self._ask_broker(call, call.deadline_ms - now_ms)
        else:
            late = DeadlineExceededError(call.address, f"waited {call.timeout_ms} ms")
            self._finish(call, late)

    def _take_name_server_result(self, call: Call, result: Reply | RocketMQError) -> None:
        if isinstance(result, TransportError | WrongSettingsError) and call.tries_left > 1:
            self._name_server += 1
            call.tries_left -= 1
            self._ask_name_server(call)
            return
        if isinstance(result, RouteReply):
            self.directory.learn(result.route.brokers, self._clock.now_ms())
        elif isinstance(result, ClusterReply):
            self.directory.learn(result.cluster.brokers, self._clock.now_ms())
        broker = self._lookups.pop(call, None)
        if broker is None:
            self._finish(call, result)
        else:
            self._take_lookup(broker, call, result)

    def _finish(self, call: Call, result: Reply | RocketMQError) -> None:
        call.result = result
        call.done_ms = self._clock.now_ms()
        call.inbox.append(call)


def _topic_of(request: Request[Reply]) -> str | None:
    """A topic that the broker serves, if the request names one."""
    queue = getattr(request, "queue", None)
    if isinstance(queue, QueueId):
        return queue.topic
    topic = getattr(request, "topic", None)
    return topic if isinstance(topic, str) else None
