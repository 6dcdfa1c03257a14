"""A name server and broker in a thread, answering over real sockets as a test scripts it.

It shares the codecs with the client under test, but neither the bundled broker's rules nor its
speed: what it answers, when, and whether at all is the test's choice.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from rocketmq_wire.codes import BROKER_VERSION
from rocketmq_wire.errors import BrokerError, RemoteProtocolError, broker_error
from rocketmq_wire.model import BrokerAddresses, ClusterInfo, QueueId, QueueSet, Route
from rocketmq_wire.remoting.session import Check, ServerSession
from rocketmq_wire.requests.brokers import ClusterReply, GetCluster
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.messages import PullMessages
from rocketmq_wire.requests.offsets import (
    CommitOffset,
    GetCommittedOffset,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
)
from rocketmq_wire.requests.topics import GetRoute, RouteReply
from support.simulated_queue import SimulatedQueue

Script = Callable[[Request[Reply]], "Reply | BrokerError | None"]


class ScriptedBroker:
    """Serves `queues`; `script` may answer first, by returning something, or close by raising.

    A script that returns `SILENCE` leaves the request without an answer.
    """

    SILENCE = Done("no answer at all")

    def __init__(self, queues: dict[QueueId, SimulatedQueue], name: str = "broker-a") -> None:
        self.queues = queues
        self.name = name
        self.script: Script = lambda _: None
        self.requests: list[Request[Reply]] = []
        self.connection_count = 0
        """Connections accepted so far."""
        self.committed: dict[tuple[str, QueueId], int] = {}
        self.published: str | None = None
        """The address that routes name; None: where it listens."""
        self.version = BROKER_VERSION
        self.check: Check | None = None
        self.others: tuple[BrokerAddresses, ...] = ()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen; on the same port as before, if there was one."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen()
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._spawn(self._accept, listener)

    def stop(self) -> None:
        """Refuse connections and break those there are."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._threads.clear()

    def __enter__(self) -> ScriptedBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def pulls(self) -> list[PullMessages]:
        return [request for request in self.requests if isinstance(request, PullMessages)]

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self._connections.add(connection)
                self.connection_count += 1
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        session = ServerSession(version=self.version, check=self.check)
        with connection, contextlib.suppress(OSError, RemoteProtocolError):
            while size := connection.recv_into(session.next_buffer()):
                session.received(size)
                while (asked := session.next_request()) is not None:
                    answer = self._answer(asked.request)
                    if answer is not self.SILENCE:
                        for part in session.answer(asked, answer):
                            connection.sendall(part)
        with self._lock:
            self._connections.discard(connection)

    def _answer(self, request: Request[Reply] | BrokerError) -> Reply | BrokerError:
        if isinstance(request, BrokerError):
            return request
        with self._lock:
            self.requests.append(request)
            scripted = self.script(request)
            if scripted is not None:
                return scripted
            try:
                return self._carry_out(request)
            except BrokerError as error:
                return error

    def _carry_out(self, request: Request[Reply]) -> Reply:
        if isinstance(request, GetRoute):
            return RouteReply(self._route(request.topic))
        if isinstance(request, GetCluster):
            brokers = self._brokers()
            names = tuple(broker.name for broker in brokers)
            return ClusterReply(ClusterInfo(brokers, {"DefaultCluster": names}))
        if isinstance(request, PullMessages):
            queue = self._queue(request.queue)
            return queue.pull(request.start, request.count_max, request.bytes_max or 1 << 30)
        if isinstance(request, GetMinOffset):
            return OffsetReply(self._queue(request.queue).bounds().start)
        if isinstance(request, GetMaxOffset):
            return OffsetReply(self._queue(request.queue).bounds().end)
        if isinstance(request, CommitOffset):
            self.committed[request.group, request.queue] = request.offset
            return Done()
        if isinstance(request, GetCommittedOffset):
            offset = self.committed.get((request.group, request.queue))
            if offset is None:
                raise broker_error(22, "not found")
            return OffsetReply(offset)
        raise broker_error(3, f"not scripted: {request}")

    def _queue(self, queue: QueueId) -> SimulatedQueue:
        if queue not in self.queues:
            raise broker_error(1, "queueId is illegal")
        return self.queues[queue]

    def _brokers(self) -> tuple[BrokerAddresses, ...]:
        own = BrokerAddresses(self.name, "DefaultCluster", {0: self.published or self.address})
        return (own, *self.others)

    def _route(self, topic: str) -> Route:
        brokers = {broker.name: broker for broker in self._brokers()}
        indexes: dict[str, list[int]] = {}
        for queue in self.queues:
            if queue.topic == topic:
                indexes.setdefault(queue.broker, []).append(queue.index)
        if not indexes:
            raise broker_error(17, f"No topic route info in name server for the topic: {topic}")
        sets = [
            QueueSet(name, max(found) + 1, max(found) + 1, 6) for name, found in indexes.items()
        ]
        return Route(tuple(sets), tuple(brokers[name] for name in indexes if name in brokers))
