"""A broker of the test's own behind a way that misbehaves on command, and that can be killed."""

from __future__ import annotations

from collections.abc import Callable

from pytest_rocketmq.fault_proxy import FaultProxy, Way
from pytest_rocketmq.handle import RocketMQ
from rocketmq_cli.support.broker_process import BrokerProcess


class RocketMQFaults(RocketMQ):
    """`options`, `name_server` and `endpoints` lead over the faulty way.

    `produce`, `consume_all` and `lag` go past it: they tell what is really there.
    """

    def __init__(
        self, process: BrokerProcess, *, label: str, log_lines: Callable[[], list[str]]
    ) -> None:
        super().__init__(process.name_server, process.endpoints, label=label, log_lines=log_lines)
        self._process = process
        self._proxies = [FaultProxy(process.name_server), FaultProxy(process.endpoints)]
        for proxy in self._proxies:
            proxy.listen()

    @property
    def name_server(self) -> str:
        return self._proxies[0].address

    @property
    def endpoints(self) -> str:
        return self._proxies[1].address

    @property
    def address_map(self) -> str:
        """For the option `addressMap`: the broker's own address is not the way to take."""
        return f"{self._real_name_server}={self.name_server}"

    @property
    def options(self) -> dict[str, str]:
        return {**super().options, "addressMap": self.address_map}

    # --- the way ------------------------------------------------------------------------------

    def delay(self, milliseconds: int) -> None:
        """Every piece that the broker sends is late by so much."""
        for proxy in self._proxies:
            proxy.delay_ms = milliseconds

    def throttle(self, bytes_per_second: int) -> None:
        """The broker's bytes pass this slowly on each connection."""
        for proxy in self._proxies:
            proxy.bytes_per_second = bytes_per_second

    def drop(self) -> None:
        """Nothing passes, and nobody is told: connections are taken and stay silent."""
        self._set_way(Way.BLACK_HOLE)

    def half_open(self) -> None:
        """Requests reach the broker, its answers do not come back."""
        self._set_way(Way.HALF_OPEN)

    def reset(self) -> None:
        """Break the connections there are; new ones work."""
        for proxy in self._proxies:
            proxy.reset()

    def refuse(self) -> None:
        """Take no new connections, and break those there are."""
        for proxy in self._proxies:
            proxy.refuse()
            proxy.reset()

    def heal(self) -> None:
        """Everything passes again. What had been swallowed is lost, so connections are broken."""
        for proxy in self._proxies:
            was_silent = proxy.way is not Way.OPEN
            proxy.way, proxy.delay_ms, proxy.bytes_per_second = Way.OPEN, 0, None
            if was_silent:
                proxy.reset()
            proxy.listen()

    def _set_way(self, way: Way) -> None:
        for proxy in self._proxies:
            proxy.way = way

    # --- the broker ---------------------------------------------------------------------------

    def kill(self) -> None:
        """End the broker at once, as a crash does. What it acknowledged is on its disk."""
        self._process.kill()

    def stop(self) -> None:
        """Let the broker end properly."""
        self._process.stop()

    def restart(self) -> None:
        """Start it again on the same data and addresses; kills it first if it still runs."""
        self._process.kill()
        self._process.start()

    def close(self) -> None:
        super().close()
        for proxy in self._proxies:
            proxy.close()
        self._process.stop()
