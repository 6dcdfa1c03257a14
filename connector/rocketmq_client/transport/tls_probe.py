"""Which language a server speaks that hung up without a word: plaintext, TLS, or neither now.

A server that insists on TLS closes a plaintext connection, and a plaintext one closes on a TLS
greeting; so does a server that is just going down, where waiting helps. Only asking both ways tells
them apart. That is done when a connection ended before anything came, and takes two short
connections with a limit of time.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final

from rocketmq_client.settings import split_address
from rocketmq_wire.errors import TlsError

_PROBE_SECONDS: Final = 0.5
_HANDSHAKE: Final = 0x16
_ALERT: Final = 0x15


def explain_hang_up(address: str, greeting: bytes, *, is_tls: bool) -> TlsError | None:
    """Why a server hung up on a connection: the language, or None if it is something else.

    `greeting` is what it answers when it speaks plaintext.
    """
    plain = _first_byte(address, greeting)
    if is_tls:
        if plain and _first_byte(address, _hello()) == b"":
            return TlsError("PLAINTEXT_SERVER", address, "the server does not speak TLS")
        return None
    if plain == b"":
        answer = _first_byte(address, _hello())
        if answer and answer[0] in (_HANDSHAKE, _ALERT):
            return TlsError("REQUIRED", address, "the server takes encrypted connections only")
    return None


def _first_byte(address: str, greeting: bytes) -> bytes | None:
    """What comes first; empty if it hangs up, None if it cannot be reached or says nothing."""
    try:
        with socket.create_connection(split_address(address), _PROBE_SECONDS) as probe:
            try:
                probe.sendall(greeting)
                return probe.recv(1)
            except (ConnectionResetError, BrokenPipeError):
                return b""
    except OSError:
        return None


def _hello() -> bytes:
    """A TLS greeting."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()
