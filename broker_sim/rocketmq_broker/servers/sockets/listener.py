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

_LOG = logging.getLogger(__name__)
_BACKLOG: Final = 512
_ACCEPTED_AT_ONCE_MAX: Final = 64
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_ROOM_PAUSE_SECONDS: Final = 1.0
_LOG = logging.getLogger(__name__)
_GREETING: Final = 0x16

Begin = Callable[[asyncio.Transport, bytes], None]
"""Takes over a connection, with the bytes received so far."""


class Abortable(Protocol):
    """A transport, or its owner."""

    def abort(self) -> None: ...


class Listener:
    """Gives each accepted connection a protocol of its own."""

    def __init__(self, bound: socket.socket, make: Callable[[], asyncio.BaseProtocol]) -> None:
        """Take over the socket and accept at once, on the running loop."""
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
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                _LOG.error("no connection can be taken for a moment: %s", error.strerror)
                self._loop.remove_reader(self._socket.fileno())
                self._pause = self._loop.call_later(_NO_ROOM_PAUSE_SECONDS, self._resume)
                return
            if _is_gone(accepted):
                accepted.close()
                continue
            accepted.setblocking(False)
            task = self._loop.create_task(self._begin(accepted))
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
            _LOG.warning("peer=%s refused: it does not speak TLS", peer_text(self._transport))
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
