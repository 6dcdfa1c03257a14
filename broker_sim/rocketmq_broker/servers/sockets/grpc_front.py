"""One gRPC port for plaintext and TLS: relays each connection to one of two inner ports.

gRPC's server serves only one of the two on a port. So it listens on two loopback ports, and the
front relays every byte. It remembers the client of each relayed connection by the relay's port.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

from rocketmq_broker.servers.sockets.listener import Listener, ProtocolSniffer, peer_text

_LOG = logging.getLogger(__name__)
_WAIT_SECONDS: Final = 120.0
INNER_HOST: Final = "127.0.0.1"


class GrpcFront:
    """Listens on the clients' port, and knows the client of each inner connection."""

    def __init__(self, host: str, port: int) -> None:
        """Bind the port at once, before the inner ports are chosen. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._bound = socket.create_server((host, port), family=family)
        self.port: int = self._bound.getsockname()[1]
        self._plain_port = 0
        self._tls_port = 0
        self.peers: dict[int, tuple[str, int]] = {}
        """The relay's port towards gRPC -> host and port of the client."""
        self._ends: set[_End] = set()
        self._waiting: set[asyncio.Transport] = set()
        """Clients that are not connected to gRPC yet."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: Listener | None = None

    def begin(self, *, plain_port: int, tls_port: int) -> None:
        self._plain_port = plain_port
        self._tls_port = tls_port
        self._listener = Listener(self._bound, self._protocol)

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

    def _protocol(self) -> ProtocolSniffer:
        return ProtocolSniffer(
            on_tls=lambda transport, data: self._begin(transport, data, self._tls_port),
            on_plain=lambda transport, data: self._begin(transport, data, self._plain_port),
            wait_seconds=_WAIT_SECONDS,
            waiting=self._waiting,
        )

    def _begin(self, transport: asyncio.Transport, data: bytes, port: int) -> None:
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
