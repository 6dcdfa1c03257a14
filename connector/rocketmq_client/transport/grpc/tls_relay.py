"""TLS of gRPC's connections by the same library, and so by the same rules, as of TCP remoting.

grpcio has its own TLS, but it cannot accept any certificate, trusts other authorities than the
operating system's, and reports a refusal only as a missing connection. Here gRPC speaks plaintext
to a socket file, and a thread carries the bytes on. Only this user can reach the file, which is
deleted once gRPC has connected.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from typing import Final

from rocketmq_client.settings import TlsSettings
from rocketmq_client.transport.tls.probe import HTTP2_GREETING
from rocketmq_client.transport.tls.socket import TlsSocket, connect_tls
from rocketmq_wire.addresses import split_address
from rocketmq_wire.errors import TlsError

_BUFFER_SIZE: Final = 256 * 1024
_ACCEPT_SECONDS: Final = 10.0
_PROBE_SECONDS: Final = 0.5
_PATH_SIZE_MAX: Final = 80


class TlsRelay:
    """Carries one connection between gRPC and a server after the TLS handshake."""

    def __init__(self, encrypted: TlsSocket) -> None:
        self.error: TlsError | None = None
        """Why the server ended the connection after a successful handshake."""
        self.is_over = False
        self._encrypted = encrypted
        # The path of a socket has room for a hundred bytes.
        is_long = len(tempfile.gettempdir()) > _PATH_SIZE_MAX
        self._directory = tempfile.mkdtemp(prefix="rmq-", dir="/tmp" if is_long else None)
        path = os.path.join(self._directory, "s")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(1)
        self._listener.settimeout(_ACCEPT_SECONDS)
        self.target = f"unix:{path}"
        threading.Thread(target=self._run, name="grpc-tls", daemon=True).start()

    def close(self) -> None:
        """End the thread if gRPC never connected; else it ends with gRPC's connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with self._listener, suppress(OSError):
                plain, _ = self._listener.accept()
                self._forget_path()
                with plain:
                    plain.setblocking(False)
                    self._carry(plain)
        except TlsError as error:
            self.error = error
        finally:
            self.is_over = True
            self._forget_path()
            self._encrypted.close()

    def _forget_path(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _carry(self, plain: socket.socket) -> None:
        """Carry bytes both ways until a side ends. Raises OSError and TlsError."""
        encrypted = self._encrypted
        inward, outward = memoryview(bytearray(_BUFFER_SIZE)), memoryview(bytearray(_BUFFER_SIZE))
        came, goes = inward[:0], outward[:0]
        while True:
            has_moved = False
            with suppress(BlockingIOError):
                if not came:
                    came = inward[: encrypted.recv_into(inward)]
                    if not came:
                        return
                    has_moved = True
            with suppress(BlockingIOError):
                if came:
                    came = came[plain.send(came) :]
                    has_moved = True
            with suppress(BlockingIOError):
                if not goes:
                    goes = outward[: plain.recv_into(outward)]
                    if not goes:
                        return
                    has_moved = True
            with suppress(BlockingIOError):
                if goes:
                    goes = goes[encrypted.sendmsg([goes]) :]
                    has_moved = True
            if not has_moved:
                self._wait(plain, is_receiving=not came, is_sending=bool(goes))

    def _wait(self, plain: socket.socket, *, is_receiving: bool, is_sending: bool) -> None:
        wants_write = is_sending or self._encrypted.wants_write
        poll = select.poll()
        poll.register(
            self._encrypted.fileno(),
            (select.POLLIN if is_receiving else 0) | (select.POLLOUT if wants_write else 0),
        )
        poll.register(
            plain.fileno(),
            (0 if is_sending else select.POLLIN) | (0 if is_receiving else select.POLLOUT),
        )
        poll.poll()


def greet_again(address: str, tls: TlsSettings) -> bytes:
    """Return an HTTP/2 server's answer to a greeting, if any. Raises as a connection does."""
    reached = socket.create_connection(split_address(address), _PROBE_SECONDS)
    probe = connect_tls(reached, tls, address, _PROBE_SECONDS)
    try:
        probe.sendmsg([memoryview(HTTP2_GREETING)])
        select.select([probe.fileno()], [], [], _PROBE_SECONDS)
        answer = bytearray(1)
        return bytes(answer[: probe.recv_into(memoryview(answer))])
    finally:
        probe.close()
