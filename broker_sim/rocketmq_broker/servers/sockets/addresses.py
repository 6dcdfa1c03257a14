"""Binds the broker's ports: the configured one, else the one of the last run, else a free one."""

from __future__ import annotations

import errno
import ipaddress
import random
import socket
from contextlib import suppress
from typing import Final

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.core.routes import WILDCARDS
from rocketmq_broker.errors import PortTakenError

# Below the range from which systems give ports to outgoing connections: such a connection could
# take a port of that range between the broker's stop and its restart.
_PORT_LOW: Final = 20_000
_PORT_HIGH: Final = 32_000
_TRIES_MAX: Final = 50
_PORTS: Final = {
    "port": ("port", "--port {}"),
    "nameServerPort": ("name_server_port", "--set name_server_port={}"),
    "grpcPort": ("grpc_port", "--grpc-port {}"),
}
"""The name of a port in `addresses.json` -> its key in the configuration, its option."""
_ASKED: Final = (
    ". Another program, perhaps another broker, listens there: stop it, or name another port "
    "({} takes a free one)"
)
_REMEMBERED: Final = (
    ", the port that the data directory remembers from its last run (config/addresses.json). Stop "
    "what listens there, perhaps the broker whose directory was copied, or name another port: {}"
)


class BoundPorts:
    """The broker's bound sockets while it starts; a start that fails closes them."""

    def __init__(self, config: BrokerConfig, remembered: dict[str, int]) -> None:
        self._config = config
        self._remembered = remembered
        self._sockets: dict[str, socket.socket] = {}

    def __enter__(self) -> BoundPorts:
        return self

    def __exit__(self, *_: object) -> None:
        for left in self._sockets.values():
            left.close()

    def port(self, name: str) -> int:
        """The port of the socket called `name`, which is bound if it was not."""
        if name not in self._sockets:
            self._sockets[name] = self._bind(name)
        port: int = self._sockets[name].getsockname()[1]
        return port

    def is_any(self, name: str) -> bool:
        """True if the port is neither configured nor remembered."""
        return not getattr(self._config, _PORTS[name][0]) and not self._remembered.get(name)

    def take(self, name: str) -> socket.socket:
        """The socket called `name`; the taker closes it."""
        self.port(name)
        return self._sockets.pop(name)

    def _bind(self, name: str) -> socket.socket:
        """Bind a socket. Raises PortTakenError.

        A remembered port that is in use is refused like a configured one: clients of the last run
        look for the broker there.
        """
        host, (key, option) = self._config.host, _PORTS[name]
        if port := getattr(self._config, key):
            return _bind(host, port, _ASKED.format(option.format(0)))
        if port := self._remembered.get(name):
            return _bind(host, port, _REMEMBERED.format(option.format("N")))
        choice = random.SystemRandom()
        for _ in range(_TRIES_MAX):
            with suppress(PortTakenError):
                return _bind(host, choice.randrange(_PORT_LOW, _PORT_HIGH))
        return _bind(host, 0)


def advertised_host(config: BrokerConfig) -> str:
    """The host that routes name; empty if the broker listens on all addresses.

    Each client then gets the address that it used.
    """
    if config.advertised_host:
        return config.advertised_host
    return "" if config.host in WILDCARDS else config.host


def is_loopback(host: str) -> bool:
    """True if only this machine reaches the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_and_port(host: str, port: int) -> str:
    """An address as clients and gRPC write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def ipv4_of(host: str) -> bytes:
    """The IPv4 address that records carry as their store host; loopback if there is none."""
    try:
        return socket.inet_aton(socket.gethostbyname(host or "127.0.0.1"))
    except OSError:
        return socket.inet_aton("127.0.0.1")


def _bind(host: str, port: int, advice: str = "") -> socket.socket:
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
