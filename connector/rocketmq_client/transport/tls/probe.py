"""Which language a server speaks that hung up without a word: plaintext, TLS, another, or none now.

A server that insists on TLS closes a plaintext connection, and a plaintext one closes on a TLS
greeting; so does a server that is just going down, where waiting helps. Only asking both ways tells
them apart. That is done when a connection ended before anything came, and takes two short
connections with a limit of time.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

from rocketmq_client.settings import split_address
from rocketmq_client.transport.tls.port_probe import explain_other_protocol
from rocketmq_wire.errors import TlsError, WrongSettingsError

_PROBE_SECONDS: Final = 0.5
_HANDSHAKE: Final = 0x16
_ALERT: Final = 0x15
# Kinds of message in a handshake.
_CERTIFICATE_REQUEST: Final = 13
_SERVER_HELLO_DONE: Final = 14
_FLIGHT_SIZE_MAX: Final = 64 * 1024


def explain_hang_up(
    address: str, greeting: bytes, *, is_tls: bool, is_grpc: bool
) -> WrongSettingsError | None:
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
    if plain is not None:
        return explain_other_protocol(address, wants_grpc=is_grpc)
    return None


def explain_silence(address: str, try_again: Callable[[], bytes]) -> TlsError | None:
    """Why a server hung up behind a TLS handshake that went well, or None.

    One that wants a certificate from us looks at it last, and gRPC's says nothing when it is not
    content. `try_again` repeats it and gives what comes then; it may raise OSError and TlsError.
    """
    if not _asks_for_certificate(address):
        return None
    try:
        if try_again():
            return None
    except TlsError as error:
        return error
    except ConnectionError:
        pass
    except OSError:
        return None
    return TlsError("CLIENT_CERTIFICATE", address, "the server is not content with ours, or none")


def _asks_for_certificate(address: str) -> bool:
    """True if the server wants a certificate. In TLS 1.2 it says so in the clear."""
    received = bytearray()
    try:
        with socket.create_connection(split_address(address), _PROBE_SECONDS) as probe:
            probe.sendall(_hello(ssl.TLSVersion.TLSv1_2))
            while len(received) < _FLIGHT_SIZE_MAX:
                kinds = _handshake_kinds(received)
                if _CERTIFICATE_REQUEST in kinds or _SERVER_HELLO_DONE in kinds:
                    return _CERTIFICATE_REQUEST in kinds
                part = probe.recv(16 * 1024)
                if not part:
                    return False
                received += part
    except OSError:
        return False
    return False


def _handshake_kinds(received: bytes | bytearray) -> list[int]:
    """The kinds of handshake messages in a server's first bytes."""
    messages = bytearray()
    place = 0
    while place + 5 <= len(received) and received[place] == _HANDSHAKE:
        size = int.from_bytes(received[place + 3 : place + 5], "big")
        messages += received[place + 5 : place + 5 + size]
        place += 5 + size
    kinds = []
    place = 0
    while place + 4 <= len(messages):
        kinds.append(messages[place])
        place += 4 + int.from_bytes(messages[place + 1 : place + 4], "big")
    return kinds


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


def _hello(version_max: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> bytes:
    """A TLS greeting."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = version_max
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()
