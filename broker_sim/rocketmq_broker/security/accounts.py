"""What the two kinds of access control share: who is known, and why somebody is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketmq_wire.requests.permissions import Permission


class AccountFileError(ValueError):
    """A file of accounts cannot be used; says where, and shows no key."""


class Account(Protocol):
    """One who is known."""

    @property
    def secret_key(self) -> str: ...

    def trusts(self, host: str) -> bool:
        """True if nobody at this address needs to sign."""
        ...

    def refusal(self, permissions: Sequence[Permission], host: str) -> str | None:
        """Why the account lacks one of the permissions; None if it has them all."""
        ...


def nobody(host: str) -> bool:
    """No address is trusted."""
    del host
    return False


@dataclass(frozen=True, slots=True, repr=False)
class Accounts:
    """Everybody who is known, and the addresses where nobody is asked."""

    by_key: Mapping[str, Account]
    trusts: Callable[[str], bool] = nobody
