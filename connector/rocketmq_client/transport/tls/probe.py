"""Why a server closed a connection without an answer: it expects TLS, plaintext, or a certificate.

A server that requires TLS closes a plaintext connection, and a plaintext one closes on a TLS
greeting; so does a server that is going down, where waiting helps. Only asking both ways
distinguishes them, by two short connections with a time limit.

The ports of the name server and of gRPC are easily swapped. Some ports speak both protocols, so the
port is wrong only if the other protocol is answered and the wanted one is not.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

from rocketmq_wire.addresses import split_address
from rocketmq_wire.errors import TlsError, WrongPortError, WrongSettingsError

_PROBE_SECONDS: Final = 0.5
_HANDSHAKE: Final = 0x16
_ALERT: Final = 0x15
# Kinds of message in a handshake.
_CERTIFICATE_REQUEST: Final = 13
_SERVER_HELLO_DONE: Final = 14
_FLIGHT_SIZE_MAX: Final = 64 * 1024
_ANSWER_SIZE_MAX: Final = 1_024
# The preface of HTTP/2 with empty settings (RFC 9113, 3.4); the answer begins with settings, too.
HTTP2_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_HTTP2_HEADER_SIZE: Final = 9
_SETTINGS: Final = 4
# Any request will do: a server answers an unknown code, too.
_HEADER: Final = b'{"code":206,"flag":0,"language":"JAVA","opaque":1,"version":0}'
_ANSWER_BEGIN: Final = b'{"code":'
_REMOTING_GREETING: Final = (
    (len(_HEADER) + 4).to_bytes(4, "big") + len(_HEADER).to_bytes(4, "big") + _HEADER
)


def explain_hang_up(
    address: str, greeting: bytes, *, is_tls: bool, is_grpc: bool
) -> WrongSettingsError | None:
    """Return why a server hung up, if the settings name the wrong protocol; else None.

    A server that speaks plaintext answers `greeting`.
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
    """Return why a server hung up after a successful TLS handshake, or None.

    A server checks our certificate last, and gRPC's sends no reason if it refuses it. `try_again`
    repeats the handshake and returns the answer; it may raise OSError and TlsError.
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
    """True if the server requests a certificate, which is in the clear in TLS 1.2."""
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
    position = 0
    while position + 5 <= len(received) and received[position] == _HANDSHAKE:
        size = int.from_bytes(received[position + 3 : position + 5], "big")
        messages += received[position + 5 : position + 5 + size]
        position += 5 + size
    kinds = []
    position = 0
    while position + 4 <= len(messages):
        kinds.append(messages[position])
        position += 4 + int.from_bytes(messages[position + 1 : position + 4], "big")
    return kinds


def _first_byte(address: str, greeting: bytes) -> bytes | None:
    """Return the answer's first byte; empty if it hangs up, None if no answer comes."""
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
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = version_max
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def explain_other_protocol(address: str, *, wants_grpc: bool) -> WrongPortError | None:
    """Return an error if the address speaks only the other plaintext protocol."""
    speaks_grpc = _is_http2(_answer(address, HTTP2_GREETING))
    if speaks_grpc == wants_grpc or speaks_grpc == _speaks_remoting(address):
        return None
    return WrongPortError(address, speaks_grpc)


def _speaks_remoting(address: str) -> bool:
    return _ANSWER_BEGIN in _answer(address, _REMOTING_GREETING)[8:]


def _is_http2(answer: bytes) -> bool:
    return len(answer) >= _HTTP2_HEADER_SIZE and answer[3] == _SETTINGS and not any(answer[5:9])


def _answer(address: str, greeting: bytes) -> bytes:
    """The beginning of the answer to a greeting."""
    received = bytearray()
    with (
        contextlib.suppress(OSError),
        socket.create_connection(split_address(address), _PROBE_SECONDS) as probe,
    ):
        probe.sendall(greeting)
        while len(received) < 8 + len(_ANSWER_BEGIN):
            part = probe.recv(_ANSWER_SIZE_MAX)
            if not part:
                break
            received += part
    return bytes(received)


def reason_of(error: Exception) -> str:
    """Why no connection could be made, in the system's words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
