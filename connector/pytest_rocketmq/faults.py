"""A broker for one test that can be killed, behind proxies that simulate network faults."""

from __future__ import annotations

from pytest_rocketmq.fault_proxy import FaultProxy, Link
from pytest_rocketmq.handle import RocketMQ
from pytest_rocketmq.logs import last_lines
from rocketmq_cli.support.broker_process import BrokerProcess


class RocketMQFaults(RocketMQ):
    """`options`, `name_server` and `endpoints` lead through the proxies with the faults.

    `produce`, `consume_all` and `lag` bypass them, and give the real state of the broker.
    """

    def __init__(self, process: BrokerProcess, *, label: str) -> None:
        super().__init__(
            process.name_server,
            process.endpoints,
            label=label,
            log_lines=lambda: last_lines(process.log_path),
        )
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
        """The option `addressMap`, which maps the broker's own address to the proxy."""
        return f"{self._real_name_server}={self.name_server}"

    @property
    def options(self) -> dict[str, str]:
        return {**super().options, "addressMap": self.address_map}

    # --- the network --------------------------------------------------------------------------

    def delay(self, milliseconds: int) -> None:
        """Delay every chunk that the broker sends."""
        for proxy in self._proxies:
            proxy.delay_ms = milliseconds

    def throttle(self, bytes_per_second: int) -> None:
        """Limit the rate of the broker's bytes on each connection."""
        for proxy in self._proxies:
            proxy.bytes_per_second = bytes_per_second

    def drop(self) -> None:
        """Drop all bytes silently: connections are accepted and never answered."""
        self._set_link(Link.BLACK_HOLE)

    def half_open(self) -> None:
        """Drop the broker's answers; requests reach the broker."""
        self._set_link(Link.HALF_OPEN)

    def reset(self) -> None:
        """Reset the present connections; new ones work."""
        for proxy in self._proxies:
            proxy.reset()

    def refuse(self) -> None:
        """Refuse new connections, and reset the present ones."""
        for proxy in self._proxies:
            proxy.refuse()
            proxy.reset()

    def heal(self) -> None:
        """End all faults. If bytes were dropped, connections are reset, because they lack them."""
        for proxy in self._proxies:
            was_silent = proxy.link is not Link.OPEN
            proxy.link = Link.OPEN
            proxy.delay_ms = 0
            proxy.bytes_per_second = None
            if was_silent:
                proxy.reset()
            proxy.listen()

    def _set_link(self, link: Link) -> None:
        for proxy in self._proxies:
            proxy.link = link

    # --- the broker ---------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the broker, as a crash does. Acknowledged messages are on its disk."""
        self._process.kill()

    def stop(self) -> None:
        """Stop the broker in order."""
        self._process.stop()

    def restart(self) -> None:
        """Start the broker again on the same data and addresses; kill it first if it runs."""
        self._process.kill()
        self._process.start()

    def close(self) -> None:
        super().close()
        for proxy in self._proxies:
            proxy.close()
        self._process.stop()
