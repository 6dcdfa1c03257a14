"""Servers that answer every connection with the same bytes, whatever they are asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def serving_bytes(answer: bytes) -> Iterator[str]:
    """The address of such a server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, answer))
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(20)


def _serve(listener: socket.socket, answer: bytes) -> None:
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        with peer, contextlib.suppress(OSError):
            peer.settimeout(5)
            peer.sendall(answer)
            while peer.recv(4_096):
                pass
