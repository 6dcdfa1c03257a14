"""RocketMQ's TCP protocol as a transport: name servers and brokers over non-blocking sockets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar, cast

from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.routing.replica_selection import ReplicaSelection, is_failure, is_useful
from rocketmq_client.routing.routes import BrokerDirectory
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.net.address_lookup import NameServers
from rocketmq_client.transport.net.clock import ActiveClock
from rocketmq_client.transport.tcp.connection import OnDone
from rocketmq_client.transport.tcp.download import Download
from rocketmq_client.transport.tcp.exchange import Exchange, Handle
from rocketmq_wire.errors import (
    ConnectError,
    DeadlineExceededError,
    RocketMQError,
    TransportError,
    WrongSettingsError,
)
from rocketmq_wire.model import MASTER_ID, OffsetRange, QueueId
from rocketmq_wire.remoting.session import Responder
from rocketmq_wire.requests.brokers import ClusterReply, GetCluster
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import NotifyMembersChanged
from rocketmq_wire.requests.messages import SendBatch, SendMessage
from rocketmq_wire.requests.offsets import CommitOffset, GetCommittedOffset, OffsetReply
from rocketmq_wire.requests.topics import (
    CreateTopic,
    DeleteTopic,
    GetRoute,
    RouteReply,
    TopicStatsReply,
)

R = TypeVar("R", bound=Reply)

# A replica takes these without a word, and its master's next word overwrites them; its copy of a
# group's progress is seconds old.
_FOR_MASTERS: Final = (
    CommitOffset, CreateTopic, DeleteTopic, GetCommittedOffset, SendBatch, SendMessage
)  # fmt: skip
_MASTER_IS_AWAY: Final = "its master is away, and replicas only serve reads"
# The master can be asked instead, so a replica that stands still is not waited for as a master is.
_REPLICA_SILENT_MS: Final = 5_000
# A lookup before a request takes at most this share of the request's time.
_LOOKUP_SHARE: Final = 2


class TcpTransport:
    """One thread's way to a cluster; connects when first used, and afresh in a forked process."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self._done: list[tuple[int, Reply | RocketMQError]] = []
        self._open_tickets: set[int] = set()
        self._lookups: dict[str, list[Callable[[RocketMQError | None], None]]] = {}
        self._process_id = os.getpid()
        self._reset()

    # --- the contract -------------------------------------------------------------------------

    def call(self, request: Request[R], *, broker: str | None = None, timeout_ms: int) -> R:
        """See `Transport.call`."""
        (reply,) = self.call_many([(broker, request)], timeout_ms=timeout_ms)
        if isinstance(reply, RocketMQError):
            raise reply
        return reply

    def call_many(
        self, requests: Sequence[tuple[str | None, Request[R]]], *, timeout_ms: int
    ) -> list[R | RocketMQError]:
        """See `Transport.call_many`."""
        self._check_process()
        replies: dict[int, Reply | RocketMQError] = {}
        with self._clock.inside():
            end_ms = self._clock.now_ms() + timeout_ms
            for index, (broker, request) in enumerate(requests):
                self.ask(broker, request, partial(replies.__setitem__, index), timeout_ms)
            while len(replies) < len(requests):
                # Every request expires by itself; the end is a second guard against a hang.
                left_ms = end_ms - self._clock.now_ms()
                if left_ms < -1_000:
                    break
                self._exchange.step(max(1, left_ms))
        missing = DeadlineExceededError("the cluster", f"waited {timeout_ms} ms")
        return [
            cast("R | RocketMQError", replies.get(index, missing)) for index in range(len(requests))
        ]

    def submit(self, request: Request[R], *, broker: str | None, timeout_ms: int) -> int:
        """See `Transport.submit`."""
        (ticket,) = self.submit_many([(broker, request)], timeout_ms=timeout_ms)
        return ticket

    def submit_many(
        self, requests: Sequence[tuple[str | None, Request[R]]], *, timeout_ms: int
    ) -> list[int]:
        """See `Transport.submit_many`."""
        self._check_process()
        tickets = [self._ticket + place for place in range(1, len(requests) + 1)]
        self._ticket += len(requests)
        self._open_tickets.update(tickets)
        with self._clock.inside():
            for ticket, (broker, request) in zip(tickets, requests, strict=True):
                self.ask(broker, request, partial(self._settle, ticket), timeout_ms)
            self._exchange.flush()
        return tickets

    def completed(self, *, timeout_ms: int) -> list[tuple[int, Reply | RocketMQError]]:
        """See `Transport.completed`."""
        self._check_process()
        with self._clock.inside():
            end_ms = self._clock.now_ms() + timeout_ms
            self._exchange.listen_for_wakes()
            while not self._done and not self._exchange.take_wake():
                left_ms = end_ms - self._clock.now_ms()
                self._exchange.step(max(0, left_ms))
                if left_ms <= 0:
                    break
        done, self._done = self._done, []
        return done

    def wake(self) -> None:
        """See `Transport.wake`."""
        self._exchange.wake()

    def respond_with(self, responder: Responder) -> None:
        """Answer what brokers ask of us; call it before anything is asked."""
        self._exchange.responder = responder

    def take_notices(self) -> list[NotifyMembersChanged]:
        """What brokers told us unasked; `completed` returns when there is something."""
        notices = list(self._exchange.notices)
        self._exchange.notices.clear()
        return notices

    def places(self) -> dict[str, str]:
        """See `Transport.places`."""
        return self._directory.places()

    def hint(self, places: Mapping[str, str]) -> None:
        """See `Transport.hint`."""
        self._check_process()
        self._directory.hint(places)

    def read_ranges(self, ranges: Sequence[OffsetRange], spec: ReadSpec) -> Iterator[RangeChunk]:
        """See `Transport.read_ranges`."""
        self._check_process()
        return Download(self, ranges, spec).chunks()

    def close(self) -> None:
        """Close every connection; what is under way fails. A later call connects again."""
        self._exchange.close()
        self._done.clear()
        self._open_tickets.clear()

    # --- what a download uses -----------------------------------------------------------------

    @property
    def clock(self) -> ActiveClock:
        """Runs only inside the transport."""
        return self._clock

    @property
    def exchange(self) -> Exchange:
        """The connections."""
        return self._exchange

    def ask(
        self,
        broker: str | None,
        request: Request[Reply],
        on_done: OnDone,
        timeout_ms: int,
        on_sent: Callable[[Handle], None] | None = None,
        slow_ms: int | None = None,
    ) -> None:
        """Start a request; `on_done` gets its answer or error, possibly before this returns.

        A broker without a known address, or whose connection failed, is looked up first. See
        `ClientSession.start` for `slow_ms`.
        """
        if broker is None:
            self._ask_name_server(request, on_done, timeout_ms, slow_ms=slow_ms)
            return
        if self._directory.is_settled(broker, self._clock.now_ms()):
            self._ask_broker(broker, request, on_done, timeout_ms, on_sent, slow_ms)
            return
        deadline_ms = self._clock.now_ms() + timeout_ms

        def go_on(error: RocketMQError | None) -> None:
            left_ms = max(1, deadline_ms - self._clock.now_ms())
            if self._directory.address(broker) is not None:
                # Looked up in vain, the last known address is still the best there is.
                self._ask_broker(broker, request, on_done, left_ms, on_sent, slow_ms)
            else:
                on_done(error or ConnectError(broker, "no name server knows this broker"))

        self._look_up(broker, _topic_of(request), go_on, timeout_ms // _LOOKUP_SHARE)

    def tell(self, broker: str, request: Request[Reply]) -> None:
        """Send a request that nobody answers, and nobody learns the fate of, to a known broker."""
        self._check_process()

        def go_on(error: RocketMQError | None) -> None:
            del error
            address = self._directory.address(broker)
            if address is not None and not self._directory.is_replica(broker):
                self._exchange.tell(address, request)

        with self._clock.inside():
            if self._directory.is_settled(broker, self._clock.now_ms()):
                go_on(None)
            else:
                self._look_up(broker, _topic_of(request), go_on, self.settings.request_timeout_ms)

    @property
    def unsent_count(self) -> int:
        """Parts of frames that sockets have not taken yet; may be asked from any thread."""
        return self._exchange.unsent_count

    # --- inside -------------------------------------------------------------------------------

    def _ask_broker(
        self,
        broker: str,
        request: Request[Reply],
        on_done: OnDone,
        timeout_ms: int,
        on_sent: Callable[[Handle], None] | None,
        slow_ms: int | None,
    ) -> None:
        address = self._directory.address(broker)
        assert address is not None
        is_replica = self._directory.is_replica(broker)
        if is_replica and isinstance(request, _FOR_MASTERS):
            # Looked up again before the next try: the master may be back by then.
            self._directory.suspect(address)
            on_done(ConnectError(broker, _MASTER_IS_AWAY))
            return
        suggested_id = self._suggestions.broker_id(request)
        if suggested_id != MASTER_ID and not is_replica:
            suggested = self._directory.replica(broker, suggested_id)
            now_ms = self._clock.now_ms()
            if suggested is not None and not self._suggestions.is_shunned(suggested, now_ms):
                self._ask_replica(suggested, broker, request, on_done, timeout_ms, on_sent, slow_ms)
                return

        def finish(result: Reply | RocketMQError) -> None:
            if isinstance(result, TransportError):
                self._directory.suspect(address)
            else:
                self._directory.trust(broker)
            if is_replica and isinstance(result, OffsetReply | TopicStatsReply):
                result = replace(result, is_current=False)
            self._suggestions.learn(request, result)
            on_done(result)

        handle = self._exchange.submit(
            address, request, finish, timeout_ms=timeout_ms, slow_ms=slow_ms
        )
        if handle is not None and on_sent is not None:
            on_sent(handle)

    def _ask_replica(
        self,
        address: str,
        broker: str,
        request: Request[Reply],
        on_done: OnDone,
        timeout_ms: int,
        on_sent: Callable[[Handle], None] | None,
        slow_ms: int | None,
    ) -> None:
        """Ask the replica that the master suggested; if that leads nowhere, the master."""
        deadline_ms = self._clock.now_ms() + timeout_ms

        def finish(result: Reply | RocketMQError) -> None:
            left_ms = deadline_ms - self._clock.now_ms()
            if is_failure(result):
                self._suggestions.shun(address, self._clock.now_ms())
            if is_useful(request, result):
                self._suggestions.trust(address)
                self._suggestions.learn(request, result)
                on_done(result)
            elif left_ms > 0:
                self._suggestions.forget(request)
                self._ask_broker(broker, request, on_done, left_ms, on_sent, slow_ms)
            else:
                self._suggestions.forget(request)
                on_done(DeadlineExceededError(address, f"waited {timeout_ms} ms"))

        share_ms = max(1, min(timeout_ms // _LOOKUP_SHARE, _REPLICA_SILENT_MS))
        handle = self._exchange.submit(
            address, request, finish, timeout_ms=share_ms, slow_ms=slow_ms
        )
        if handle is not None and on_sent is not None:
            on_sent(handle)

    def _ask_name_server(
        self,
        request: Request[Reply],
        on_done: OnDone,
        timeout_ms: int,
        tried: int = 0,
        slow_ms: int | None = None,
    ) -> None:
        """Ask the name server that answered last, then the others; each gets a fair share."""
        try:
            servers = self._name_servers.addresses()
        except ConnectError as error:
            on_done(error)
            return
        deadline_ms = self._clock.now_ms() + timeout_ms
        address = servers[self._name_server % len(servers)]

        def finish(result: Reply | RocketMQError) -> None:
            if isinstance(result, TransportError | WrongSettingsError) and tried + 1 < len(servers):
                self._name_server += 1
                left_ms = max(1, deadline_ms - self._clock.now_ms())
                self._ask_name_server(request, on_done, left_ms, tried + 1, slow_ms)
                return
            if isinstance(result, RouteReply):
                self._directory.learn(result.route.brokers, self._clock.now_ms())
            elif isinstance(result, ClusterReply):
                self._directory.learn(result.cluster.brokers, self._clock.now_ms())
            on_done(result)

        share_ms = max(1, timeout_ms // (len(servers) - tried))
        self._exchange.submit(address, request, finish, timeout_ms=share_ms, slow_ms=slow_ms)

    def _look_up(
        self,
        broker: str,
        topic: str | None,
        go_on: Callable[[RocketMQError | None], None],
        timeout_ms: int,
    ) -> None:
        """Ask for the broker's address, once for everybody who waits for it."""
        waiting = self._lookups.get(broker)
        if waiting is not None:
            waiting.append(go_on)
            return
        self._lookups[broker] = [go_on]

        def finish(result: Reply | RocketMQError) -> None:
            is_unknown = self._directory.address(broker) is None
            if isinstance(result, RouteReply | TransportError) or topic is None or not is_unknown:
                self._finish_lookup(broker, result)
            else:
                # The name server has no such topic, but may have the broker.
                self._ask_name_server(
                    GetCluster(), partial(self._finish_lookup, broker), timeout_ms
                )

        request: Request[Reply] = GetCluster() if topic is None else GetRoute(topic)
        self._ask_name_server(request, finish, max(1, timeout_ms))

    def _finish_lookup(self, broker: str, result: Reply | RocketMQError) -> None:
        error = result if isinstance(result, RocketMQError) else None
        for go_on in self._lookups.pop(broker, []):
            go_on(error)

    def _settle(self, ticket: int, result: Reply | RocketMQError) -> None:
        self._open_tickets.discard(ticket)
        self._done.append((ticket, result))

    def _check_process(self) -> None:
        if os.getpid() != self._process_id:
            # Forked: the sockets belong to the parent. Closing our copies does not disturb them.
            self._exchange.close(tells=False)
            self._process_id = os.getpid()
            self._reset()

    def _reset(self) -> None:
        self._clock = ActiveClock()
        self._exchange = Exchange(
            self._clock,
            connect_timeout_ms=self.settings.connect_timeout_ms,
            security=self.settings.security,
        )
        self._directory = BrokerDirectory(self.settings.address_map)
        self._suggestions = ReplicaSelection()
        self._name_servers = NameServers(
            self.settings.name_servers, timeout_ms=self.settings.connect_timeout_ms
        )
        self._name_server = 0
        self._ticket = 0
        self._lookups.clear()
        self._open_tickets.clear()
        self._done.clear()


def _topic_of(request: Request[Reply]) -> str | None:
    """A topic that the broker serves, should the request name one."""
    queue = getattr(request, "queue", None)
    if isinstance(queue, QueueId):
        return queue.topic
    topic = getattr(request, "topic", None)
    return topic if isinstance(topic, str) else None
