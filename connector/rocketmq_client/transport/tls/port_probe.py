"""Which of RocketMQ's two plaintext protocols an address speaks that hung up on the other one.

The name server's port and the one of gRPC are easily swapped. A server that hung up may also be one
that is just going down, and some ports speak both: it counts when the other protocol is answered
and the wanted one is not.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from rocketmq_client.settings import split_address
from rocketmq_wire.errors import WrongPortError

_PROBE_SECONDS: Final = 0.5
_ANSWER_SIZE_MAX: Final = 1_024
# The preface of HTTP/2 with empty settings (RFC 9113, 3.4); the answer begins with settings, too.
HTTP2_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_HTTP2_HEADER_SIZE: Final = 9
_SETTINGS: Final = 4
# Any request will do: whoever does not know the code answers that he does not.
_HEADER: Final = b'{"code":206,"flag":0,"language":"JAVA","opaque":1,"version":0}'
_ANSWER_BEGIN: Final = b'{"code":'
_REMOTING_GREETING: Final = (
    (len(_HEADER) + 4).to_bytes(4, "big") + len(_HEADER).to_bytes(4, "big") + _HEADER
)


def explain_other_protocol(address: str, *, wants_grpc: bool) -> WrongPortError | None:
    """The error to raise where the address speaks the protocol that was not asked for; or None."""
    speaks_grpc = _is_http2(_answer(address, HTTP2_GREETING))
    if speaks_grpc == wants_grpc or speaks_grpc == _speaks_remoting(address):
        return None
    return WrongPortError(address, speaks_grpc)


def _speaks_remoting(address: str) -> bool:
    return _ANSWER_BEGIN in _answer(address, _REMOTING_GREETING)[8:]


def _is_http2(answer: bytes) -> bool:
    return len(answer) >= _HTTP2_HEADER_SIZE and answer[3] == _SETTINGS and not any(answer[5:9])


def _answer(address: str, greeting: bytes) -> bytes:
    """What comes in answer to a greeting, as far as it comes."""
    received = bytearray()
    with (
        contextlib.suppress(OSError),
        socket.create_connection(split_address(address), _PROBE_SECONDS) as probe,
    ):
        probe.sendall(greeting)
        # It may come in pieces; these few bytes are all that is looked at.
        while len(received) < 8 + len(_ANSWER_BEGIN):
            part = probe.recv(_ANSWER_SIZE_MAX)
            if not part:
                break
            received += part
    return bytes(received)
