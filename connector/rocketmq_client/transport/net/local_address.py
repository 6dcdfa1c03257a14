"""This machine's address, as a client names itself to brokers."""

from __future__ import annotations

import socket


def local_address() -> str:
    """What the host's name leads to; loopback where that is nothing. Asks no cluster."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
