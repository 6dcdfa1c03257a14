"""A configuration's ports while a broker starts: bound in time, closed again if it fails."""

from __future__ import annotations

import socket
from typing import Final

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.core.routes import WILDCARDS
from rocketmq_broker.servers.sockets.addresses import bind, port_of

_OPTIONS: Final = {
    "port": "--port {}",
    "nameServerPort": "--set name_server_port={}",
    "grpcPort": "--grpc-port {}",
}


class BoundPorts:
    """The broker's sockets while it starts: closed again if it does not come to serving."""

    def __init__(self, config: BrokerConfig, remembered: dict[str, int]) -> None:
        self._host, self._remembered = config.host, remembered
        self._sockets: dict[str, socket.socket] = {}

    def __enter__(self) -> BoundPorts:
        return self

    def __exit__(self, *_: object) -> None:
        for left in self._sockets.values():
            left.close()

    def port(self, name: str, wanted: int) -> int:
        """The port of the socket called `name`, bound now if it was not."""
        if name not in self._sockets:
            self._sockets[name] = bind(
                self._host,
                port=wanted,
                remembered=self._remembered.get(name, 0),
                option=_OPTIONS[name],
            )
        return port_of(self._sockets[name])

    def is_any(self, name: str, wanted: int) -> bool:
        """True if any free port does."""
        return not wanted and not self._remembered.get(name, 0)

    def take(self, name: str, wanted: int) -> socket.socket:
        """The socket called `name`; the taker closes it."""
        self.port(name, wanted)
        return self._sockets.pop(name)


def advertised_host(config: BrokerConfig) -> str:
    """Empty when the broker listens everywhere: each client then hears the address it used."""
    if config.advertised_host:
        return config.advertised_host
    return "" if config.host in WILDCARDS else config.host
