"""TLS between a socket's transport and the protocol inside.

Unlike asyncio's own layer, this one sends every TLS alert before it closes a refused connection, so
that the client can report the reason. It encrypts bytes as they are written and holds none back, so
the transport pauses and resumes the protocol directly when the client reads slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from rocketmq_broker.peer_log import PeerLog
from rocketmq_wire.model import Buffer

_PEERS = PeerLog(logging.getLogger(__name__))
_BUFFER_SIZE: Final = 256 * 1024
_HANDSHAKE_SECONDS_MAX: Final = 10.0


class TlsLayer(asyncio.BufferedProtocol, asyncio.Transport):
    """The server's side of one connection, for a transport that reads already.

    It is the protocol of the socket's transport, and the transport of the protocol inside.

    `waiting` holds the transport until the handshake is over and the protocol knows it.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.BufferedProtocol],
        peer: str,
        waiting: set[asyncio.Transport],
    ) -> None:
        super().__init__()
        self._waiting = waiting
        waiting.add(transport)
        self._transport = transport
        self._make_protocol = make_protocol
        self._peer = peer
        self._host = peer.rpartition(":")[0]
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._protocol: asyncio.BufferedProtocol | None = None
        self._buffer = memoryview(bytearray(_BUFFER_SIZE))
        self._is_paused = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_HANDSHAKE_SECONDS_MAX, self._give_up)
        transport.set_protocol(self)

    # --- called by the socket's transport -----------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.feed(self._buffer[:nbytes])

    def feed(self, encrypted: Buffer) -> None:
        """Take received bytes."""
        self._incoming.write(encrypted)
        self._advance()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._waiting.discard(self._transport)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    # --- called by the protocol inside --------------------------------------------------------

    def write(self, data: Buffer) -> None:
        """Encrypt bytes and send them."""
        if self._transport.is_closing():
            return
        try:
            self._ssl.write(data)
        except ssl.SSLError as error:
            self._refuse(error)
            return
        self._send()

    def close(self) -> None:
        if not self._transport.is_closing():
            # Sends the client the end of the TLS stream.
            with contextlib.suppress(ssl.SSLError):
                self._ssl.unwrap()
            self._send()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._transport.resume_reading()
        # Bytes that are decrypted already do not wait for the next ones.
        self._loop.call_soon(self._advance)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    # --- inside -------------------------------------------------------------------------------

    def _advance(self) -> None:
        if self._transport.is_closing():
            return
        try:
            if self._protocol is None:
                self._ssl.do_handshake()
                self._begin()
            self._read()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._transport.close()
            return
        except ssl.SSLError as error:
            self._refuse(error)
            return
        self._send()

    def _begin(self) -> None:
        self._timer.cancel()
        self._waiting.discard(self._transport)
        self._protocol = self._make_protocol()
        self._protocol.connection_made(self)

    def _read(self) -> None:
        protocol = self._protocol
        assert protocol is not None
        while not self._is_paused and not self._transport.is_closing():
            buffer = memoryview(protocol.get_buffer(-1))
            # Typeshed has only the form without a buffer, which returns bytes.
            size = cast(int, self._ssl.read(len(buffer), cast(bytearray, buffer)))
            if not size:
                raise ssl.SSLZeroReturnError
            protocol.buffer_updated(size)

    def _send(self) -> None:
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def _refuse(self, error: ssl.SSLError) -> None:
        text = "peer=%s closed: TLS failed: %s"
        _PEERS.warning(self._host, text, self._peer, error.reason or error)
        # Sends the alert, which gives the client the reason.
        self._send()
        self._transport.close()

    def _give_up(self) -> None:
        text = "peer=%s closed: no TLS handshake within %d s"
        _PEERS.warning(self._host, text, self._peer, _HANDSHAKE_SECONDS_MAX)
        self._transport.abort()
