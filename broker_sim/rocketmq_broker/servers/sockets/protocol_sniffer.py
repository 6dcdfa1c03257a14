"""Plaintext and TLS on one port, distinguished by the first byte of a connection.

A TLS greeting begins with 0x16; remoting frames and HTTP/2 never do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

_LOG = logging.getLogger(__name__)
_GREETING: Final = 0x16

Begin = Callable[[asyncio.Transport, bytes], None]
"""Takes over a connection, with the bytes received so far."""


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
    """The peer's address for the log."""
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
