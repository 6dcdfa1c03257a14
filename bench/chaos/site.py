"""A broker behind proxies, and the options that lead a query through them."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.chaos.call_proxy import CallProxy
from bench.chaos.framing import Http2Framing, RemotingFraming
from rocketmq_cli.support.broker_process import BrokerProcess
from rocketmq_client.settings import ConnectionSettings

TCP: Final = "nameServer"
GRPC: Final = "endpoints"


class Site:
    """One scenario's broker; what this program itself asks bypasses the proxies."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self._stack = ExitStack()
        self.broker = self._stack.enter_context(BrokerProcess(directory / "broker"))
        name_server, endpoints = self.broker.name_server, self.broker.endpoints
        self.proxies = {
            TCP: CallProxy(name_server, RemotingFraming, chance),
            GRPC: CallProxy(endpoints, Http2Framing, chance),
        }
        for proxy in self.proxies.values():
            self._stack.enter_context(proxy)

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def settings(self, transport: str) -> ConnectionSettings:
        """Settings that lead straight to the broker."""
        if transport == GRPC:
            return ConnectionSettings(endpoints=self.broker.endpoints)
        return ConnectionSettings(name_servers=(self.broker.name_server,))

    def options(self, transport: str) -> dict[str, str]:
        """The connection options of a query, over either transport."""
        through = {transport: self.proxies[transport].address}
        if transport == TCP:
            # The route names the broker's own address.
            through["addressMap"] = f"{self.broker.name_server}={self.proxies[TCP].address}"
        return through
