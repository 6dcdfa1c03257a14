"""The connections of one transport: polls them in one thread and collects finished calls."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.net.buffers import BufferPool
from rocketmq_client.transport.net.clock import ActiveClock
from rocketmq_client.transport.tcp.connection import Call, Connection
from rocketmq_wire.errors import ConnectionLostError, LocalProtocolError, RocketMQError
from rocketmq_wire.remoting.session import Responder
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import NotifyMembersChanged

_NOTICES_MAX: Final = 256
_READ: Final = selectors.EVENT_READ
_WRITE: Final = selectors.EVENT_WRITE


CLOSED_HERE: Final = "it was closed here"


def _new_selector() -> selectors.BaseSelector:
    # poll(2) keeps no state in the kernel: after a fork the child cannot disturb its parent, as it
    # would through a shared epoll descriptor.
    if hasattr(selectors, "PollSelector"):
        return selectors.PollSelector()
    return selectors.SelectSelector()


class Exchange:
    """Connections by address. Not thread-safe, but for `wake` and `unsent_count`."""

    def __init__(
        self, settings: ConnectionSettings, clock: ActiveClock, responder: Responder | None = None
    ) -> None:
        """`responder` answers requests of brokers."""
        self.clock = clock
        self._responder = responder
        self._settings = settings
        self._connections: dict[str, Connection] = {}
        self._buffers = BufferPool()
        self._selector = _new_selector()
        self._interest: dict[Connection, tuple[int, int]] = {}
        self._wakers: tuple[socket.socket, socket.socket] | None = None
        self._is_woken = False
        self._done: list[Call] = []
        self.notices: deque[NotifyMembersChanged] = deque(maxlen=_NOTICES_MAX)
        """The last notices of brokers."""

    def wake(self) -> None:
        """Make a waiting `step` return, or the next one. From any thread."""
        self._is_woken = True
        wakers = self._wakers
        if wakers is not None:
            # If the socket is full, wake-ups are on their way; if it is closed, no step waits.
            with contextlib.suppress(OSError):
                wakers[1].send(b"w")

    def take_wake(self) -> bool:
        is_woken, self._is_woken = self._is_woken, False
        return is_woken

    def listen_for_wakes(self) -> None:
        """Prepare for `wake` from other threads."""
        if self._wakers is None:
            # The descriptor's number of a broken connection may be reused here.
            self._update_interest()
            self._wakers = socket.socketpair()
            for waker in self._wakers:
                waker.setblocking(False)
            self._selector.register(self._wakers[0], _READ, None)

    def submit(self, address: str, call: Call, *, timeout_ms: int) -> None:
        """Queue a call's request. A call that fails at once is done at once."""
        call.address = address
        connection = self._connection(address)
        if connection.is_dead:
            self._fail(call, connection.failure)
            return
        try:
            connection.submit(call, now_ms=self.clock.now_ms(), timeout_ms=timeout_ms)
        except LocalProtocolError as error:
            self._fail(call, error)

    def take_done(self) -> list[Call]:
        """The calls that ended since the last time."""
        done = self._done.copy()
        self._done.clear()
        return done

    def tell(
        self, address: str, request: Request[Reply], fields: Mapping[str, str] | None = None
    ) -> None:
        """Queue a request that has no reply, if a connection can be had."""
        connection = self._connection(address)
        if not connection.is_dead:
            connection.tell(request, fields)

    @property
    def unsent_count(self) -> int:
        """The parts of frames that sockets have not taken yet. From any thread."""
        return sum(connection.unsent_count for connection in tuple(self._connections.values()))

    def flush(self) -> None:
        for connection in list(self._connections.values()):
            connection.flush()

    def step(self, timeout_ms: int) -> None:
        """Send, wait for at most `timeout_ms` until something happens, receive, expire."""
        self.flush()
        self._update_interest()
        now_ms = self.clock.now_ms()
        deadlines = [
            deadline_ms
            for connection in self._connections.values()
            if (deadline_ms := connection.deadline_ms) is not None
        ]
        wait_ms = max(0, min([timeout_ms, *(deadline - now_ms for deadline in deadlines)]))
        if self._done:
            wait_ms = 0
        events = self._selector.select(wait_ms / 1_000)
        now_ms = self.clock.now_ms()
        for key, mask in events:
            connection: Connection | None = key.data
            if connection is None:
                self._drain_wakers()
                continue
            connection.on_ready(now_ms, readable=bool(mask & _READ), writable=bool(mask & _WRITE))
            if connection.notices:
                self.notices.extend(connection.notices)
                connection.notices.clear()
                # The client that waits for results must see the notice, too.
                self._is_woken = True
        # After the reading: a call whose answer has arrived does not expire.
        for connection in list(self._connections.values()):
            deadline_ms = connection.deadline_ms
            if deadline_ms is not None and now_ms >= deadline_ms:
                connection.expire(now_ms)

    def cut(self, calls: Iterable[Call]) -> None:
        """Drop calls and close their connections; other calls there fail."""
        connections = [c.connection for c in calls if c.connection and c.connection.drop(c)]
        for connection in dict.fromkeys(connections):
            connection.fail(ConnectionLostError(connection.address, "a download was given up"))

    def close(self, *, is_forked: bool = False) -> None:
        """Close every connection, and end its calls unless they are a parent process's."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            if is_forked:
                connection.close()
            else:
                connection.fail(ConnectionLostError(connection.address, CLOSED_HERE))
        self._interest.clear()
        self._buffers.clear()
        wakers, self._wakers = self._wakers, None
        for waker in wakers or ():
            waker.close()
        self._selector.close()
        self._selector = _new_selector()

    def _fail(self, call: Call, error: RocketMQError) -> None:
        call.result = error
        self._done.append(call)

    def _drain_wakers(self) -> None:
        if self._wakers is not None:
            with contextlib.suppress(OSError):
                self._wakers[0].recv(4_096)

    def _connection(self, address: str) -> Connection:
        connection = self._connections.get(address)
        if connection is not None and connection.is_stale():
            self._connections.pop(address).close()
            connection = None
        if connection is None:
            connection = Connection(
                address,
                self._buffers,
                self._done,
                settings=self._settings,
                now_ms=self.clock.now_ms(),
                responder=self._responder,
            )
            if not connection.is_dead:
                self._connections[address] = connection
        return connection

    def _update_interest(self) -> None:
        """Update the selector: closed connections first, then new and changed ones.

        The number of a descriptor is reused as soon as its socket is closed.
        """
        for connection, (descriptor, _) in list(self._interest.items()):
            if connection.is_dead or connection.fileno() != descriptor:
                del self._interest[connection]
                self._selector.unregister(descriptor)
        for address, connection in list(self._connections.items()):
            if connection.is_dead:
                del self._connections[address]
                continue
            wanted = _READ | _WRITE if connection.wants_write else _READ
            known = self._interest.get(connection)
            if known is None:
                self._selector.register(connection.fileno(), wanted, connection)
            elif known[1] != wanted:
                self._selector.modify(known[0], wanted, connection)
            self._interest[connection] = (connection.fileno(), wanted)
