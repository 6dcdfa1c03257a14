"""Accounts and their rights, the contract of both kinds of access control."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketmq_wire.requests.permissions import Permission


class Account(Protocol):
    """A user of the broker."""

    @property
    def secret_key(self) -> str: ...

    def trusts(self, host: str) -> bool:
        """True if requests from this address need no signature."""
        ...

    def refusal(self, permissions: Sequence[Permission], host: str) -> str | None:
        """The reason why the account lacks a permission; None if it has all of them."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class Accounts:
    """All accounts by access key, and the addresses that need none."""

    by_key: Mapping[str, Account]
    trusts: Callable[[str], bool] = lambda _: False
