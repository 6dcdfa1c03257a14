"""Questions to producers about half messages: sent by their connections, and not waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rocketmq_broker.engine.transactions.half_messages import ClientCheck
from rocketmq_wire.requests.transactions import CheckTransaction

OnCheck = Callable[[CheckTransaction], None]


class TransactionChecks:
    """The connections by which producers are asked. What they answer is a request of its own."""

    def __init__(self) -> None:
        self._clients: dict[int, OnCheck] = {}

    def add(self, peer_key: int, on_check: OnCheck) -> None:
        """A connection whose client can be asked."""
        self._clients[peer_key] = on_check

    def remove(self, peer_key: int) -> None:
        self._clients.pop(peer_key, None)

    def ask(self, checks: Iterable[ClientCheck]) -> None:
        """Ask them; a client that has gone is asked no more, and another one in the next turn."""
        for check in checks:
            on_check = self._clients.get(check.peer_key)
            if on_check is not None:
                on_check(check.request)
