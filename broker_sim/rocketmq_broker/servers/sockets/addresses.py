"""Sockets to listen on: the ports of the configuration, else those of last time, else free ones."""

from __future__ import annotations

import errno
import random
import socket
from contextlib import suppress
from typing import Final

from rocketmq_broker.config import ConfigError

# Below the range from which systems give ports to outgoing connections: a port from that range is
# easily taken by somebody's connection between our stop and our restart.
_PORT_LOW: Final = 20_000
_PORT_HIGH: Final = 32_000
_TRIES_MAX: Final = 50
_ASKED: Final = (
    ". Another program, perhaps another broker, listens there: stop it, or name another port "
    "({} takes a free one)"
)
_REMEMBERED: Final = (
    ", the port that the data directory remembers from its last run (config/addresses.json). Stop "
    "what listens there, perhaps the broker whose directory was copied, or name another port: {}"
)


class PortTakenError(ConfigError):
    """A port that was asked for is in use."""

    def __init__(self, host: str, port: int, reason: str, advice: str = "") -> None:
        super().__init__(host, port, reason, advice)
        self.host, self.port, self.reason, self.advice = host, port, reason, advice

    def __str__(self) -> str:
        return f"cannot listen on {self.host}:{self.port}: {self.reason}{self.advice}"


def bind(host: str, *, port: int, remembered: int = 0, option: str = "--port {}") -> socket.socket:
    """A bound socket, not listening yet.

    Raises PortTakenError if the port asked for, or every one tried, is in use. A remembered port is
    not given up lightly either: clients of the last run look for the broker there. `option` is what
    names the port on the command line.
    """
    if port:
        return _bind_one(host, port, _ASKED.format(option.format(0)))
    if remembered:
        return _bind_one(host, remembered, _REMEMBERED.format(option.format("N")))
    choice = random.SystemRandom()
    for _ in range(_TRIES_MAX):
        with suppress(PortTakenError):
            return _bind_one(host, choice.randrange(_PORT_LOW, _PORT_HIGH))
    return _bind_one(host, 0)


def _bind_one(host: str, port: int, advice: str = "") -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart must not wait for the old connections to leave TIME_WAIT.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        is_taken = error.errno == errno.EADDRINUSE
        raise PortTakenError(
            host, port, error.strerror or str(error), advice if is_taken else ""
        ) from error
    return bound


def port_of(bound: socket.socket) -> int:
    port: int = bound.getsockname()[1]
    return port


def ipv4_of(host: str) -> bytes:
    """The IPv4 address that records carry as their store host; loopback if there is none."""
    try:
        return socket.inet_aton(socket.gethostbyname(host or "127.0.0.1"))
    except OSError:
        return socket.inet_aton("127.0.0.1")
