"""Accepts connections, and distinguishes plaintext from TLS on one port.

Asyncio's own server loses a connection if it is closed at the moment of accepting it; the client
then waits for a broker that has stopped. The listener knows every accepted connection until its
protocol does. A TLS greeting begins with 0x16; remoting frames and HTTP/2 never do.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from rocketmq_broker.peer_log import PeerLog
from rocketmq_broker.servers.sockets.descriptors import Room

_BACKLOG: Final = 512
_ACCEPTED_AT_ONCE_MAX: Final = 64
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_ROOM_PAUSE_SECONDS: Final = 1.0
_LOG = logging.getLogger(__name__)
_PEERS = PeerLog(_LOG)
_GREETING: Final = 0x16
_FRONT_WAIT_SECONDS: Final = 120.0
INNER_HOST: Final = "127.0.0.1"
_RELAY_WEIGHT: Final = 3
"""A relayed connection has a socket for the client, and two between the relay and gRPC."""

Begin = Callable[[asyncio.Transport, bytes], None]
"""Takes over a connection, with the bytes received so far."""


class Abortable(Protocol):
    """A transport, or its owner."""

    def abort(self) -> None: ...


class Listener:
    """Gives each accepted connection a protocol of its own."""

    def __init__(
        self,
        bound: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        room: Room,
        weight: int = 1,
    ) -> None:
        """Take over the socket and accept at once, on the running loop.

        `weight` is the number of descriptors that a connection takes.
        """
        self._room = room
        self._weight = weight
        self._socket = bound
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        bound.setblocking(False)
        bound.listen(_BACKLOG)
        self._resume()

    def stop(self) -> None:
        """Accept no new connections; a second call does nothing."""
        if self._pause is not None:
            self._pause.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    async def hang_up(self, known: Callable[[], Iterable[Abortable]]) -> None:
        """Stop, wait until all accepted connections are known, and abort the known ones."""
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(known()):
            connection.abort()
        # One turn of the loop lets the transports close their sockets.
        await asyncio.sleep(0)

    def _resume(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE_MAX):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                _PEERS.warning("", "no connection can be taken for a moment: %s", error.strerror)
                self._loop.remove_reader(self._socket.fileno())
                self._pause = self._loop.call_later(_NO_ROOM_PAUSE_SECONDS, self._resume)
                return
            if _is_gone(accepted):
                accepted.close()
                continue
            admitted = self._room.admit(accepted, self._weight)
            if admitted is None:
                text = "peer=%s:%d refused: too many connections"
                _PEERS.warning(address[0], text, *address[:2])
                continue
            admitted.setblocking(False)
            task = self._loop.create_task(self._begin(admitted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _begin(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, accepted)
        except OSError as error:
            _LOG.info("a connection ended before it began: %s", error)
            accepted.close()


def _is_gone(accepted: socket.socket) -> bool:
    try:
        accepted.getpeername()
    except OSError:
        return True
    return False


class ProtocolSniffer(asyncio.Protocol):
    """Waits for the first byte and passes the connection on; without `on_plain`, only TLS.

    `waiting` holds the connections until then, so that a server that stops can end them.
    """

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle

    def __init__(
        self,
        *,
        on_tls: Begin,
        on_plain: Begin | None,
        wait_seconds: float,
        waiting: set[asyncio.Transport],
    ) -> None:
        self._on_tls = on_tls
        self._on_plain = on_plain
        self._wait_seconds = wait_seconds
        self._waiting = waiting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._waiting.add(transport)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._wait_seconds, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._timer.cancel()
        self._waiting.discard(self._transport)
        if data[0] == _GREETING:
            self._on_tls(self._transport, data)
        elif self._on_plain is not None:
            self._on_plain(self._transport, data)
        else:
            peer = peer_text(self._transport)
            host = peer.rpartition(":")[0]
            _PEERS.warning(host, "peer=%s refused: it does not speak TLS", peer)
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._timer.cancel()
        self._waiting.discard(self._transport)


def peer_text(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername") or ("unknown", 0)
    return f"{peer[0]}:{peer[1]}"


def hand_over(
    transport: asyncio.Transport, protocol: asyncio.BufferedProtocol, data: bytes
) -> None:
    """Pass a connection to a protocol, with the bytes received so far."""
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    left = memoryview(data)
    while len(left) and not transport.is_closing():
        buffer = memoryview(protocol.get_buffer(len(left)))
        size = min(len(buffer), len(left))
        buffer[:size] = left[:size]
        protocol.buffer_updated(size)
        left = left[size:]


class GrpcFront:
    """Serves plaintext and TLS on one gRPC port: relays each connection to one of two inner ports.

    gRPC's server serves only one of the two on a port. The front remembers the client of each
    relayed connection by the relay's port.
    """

    def __init__(self, host: str, port: int, room: Room) -> None:
        """Bind the port at once, before the inner ports are chosen. Raises OSError."""
        self._room = room
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._bound = socket.create_server((host, port), family=family)
        self.port: int = self._bound.getsockname()[1]
        self.peers: dict[int, tuple[str, int]] = {}
        """The relay's port towards gRPC -> host and port of the client."""
        self._ends: set[_End] = set()
        self._waiting: set[asyncio.Transport] = set()
        """Clients that are not connected to gRPC yet."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: Listener | None = None

    def begin(self, *, plain_port: int, tls_port: int) -> None:
        self._listener = Listener(
            self._bound, lambda: self._sniffer(plain_port, tls_port), self._room, _RELAY_WEIGHT
        )

    def stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.stop()
        self._bound.close()

    async def close(self) -> None:
        self.stop_listening()
        if self._listener is not None:
            await self._listener.hang_up(self._transports)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Aborts connections that a cancelled task had just made.
        for transport in self._transports():
            transport.abort()
        await asyncio.sleep(0)

    def _transports(self) -> list[asyncio.Transport]:
        return [*self._waiting, *(end.transport for end in self._ends)]

    def _sniffer(self, plain_port: int, tls_port: int) -> ProtocolSniffer:
        return ProtocolSniffer(
            on_tls=lambda transport, data: self._begin(transport, data, tls_port),
            on_plain=lambda transport, data: self._begin(transport, data, plain_port),
            wait_seconds=_FRONT_WAIT_SECONDS,
            waiting=self._waiting,
        )

    def _begin(self, transport: asyncio.Transport, data: bytes, port: int) -> None:
        # From here on gRPC ends the connections that send nothing.
        self._room.heard(transport.get_extra_info("socket").fileno())
        transport.pause_reading()
        self._waiting.add(transport)
        task = asyncio.get_running_loop().create_task(self._connect(transport, data, port))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, outer: asyncio.Transport, data: bytes, port: int) -> None:
        loop = asyncio.get_running_loop()
        reached = socket.socket()
        reached.setblocking(False)
        try:
            # The peer is known before gRPC sees the connection.
            reached.bind((INNER_HOST, 0))
            peer = outer.get_extra_info("peername")
            self.peers[reached.getsockname()[1]] = (str(peer[0]), int(peer[1]))
            reached.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(reached, (INNER_HOST, port))
            inner, _ = await loop.create_connection(lambda: _End(self), sock=reached)
        except (OSError, asyncio.CancelledError) as error:
            if isinstance(error, OSError):
                _LOG.error("peer=%s: gRPC cannot be reached: %s", peer_text(outer), error)
            self.peers.pop(reached.getsockname()[1], None)
            reached.close()
            outer.abort()
            return
        finally:
            self._waiting.discard(outer)
        near, far = _End(self), inner.get_protocol()
        assert isinstance(far, _End)
        near.transport = outer
        near.other, far.other = far, near
        self._ends.add(near)
        outer.set_protocol(near)
        inner.write(data)
        if outer.is_closing():
            inner.abort()
            return
        outer.resume_reading()

    def began(self, end: _End) -> None:
        self._ends.add(end)

    def ended(self, end: _End) -> None:
        self._ends.discard(end)
        self.peers.pop(end.port, None)


class _End(asyncio.Protocol):
    """One side of a relayed connection."""

    transport: asyncio.Transport

    def __init__(self, front: GrpcFront) -> None:
        self._front = front
        self.other: _End | None = None
        self.port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.port = int(transport.get_extra_info("sockname")[1])
        self._front.began(self)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._front.ended(self)
        if self.other is not None:
            self.other.transport.close()
