"""Accounts and their rights, the contract of both kinds of access control, and address patterns."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rocketmq_wire.requests.permissions import Permission

Matches = Callable[[str], bool]
"""True for some remote addresses."""

_COMMAS: Final = re.compile(r",(?![^{]*})")
_OCTET_MAX: Final = 255
_ANY: Final = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")


class Account(Protocol):
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
    trusts: Matches = lambda _: False


def address_pattern(text: str) -> Matches | None:
    """A pattern of remote addresses, as RocketMQ writes them; None for an empty text.

    `*`, `10.1.2.3`, `10.1.*`, `10.1.2.3-9`, `10.1.2.{3,9}`, several with commas between them, and
    networks such as `10.1.0.0/16`. IPv6 has whole addresses, `*` and networks only.

    Raises ValueError.
    """
    patterns = [_one(part.strip()) for part in _COMMAS.split(text) if part.strip()]
    if not patterns:
        return None

    def matches_any(address: str) -> bool:
        address = _plain(address)
        return any(matches(address) for matches in patterns)

    return matches_any


def _plain(address: str) -> str:
    """An address as patterns name it: a listener on `::` sees IPv4 clients as `::ffff:10.0.0.1`."""
    if not address.startswith("::ffff:"):
        return address
    mapped = ipaddress.IPv6Address(address).ipv4_mapped
    return address if mapped is None else str(mapped)


def _one(text: str) -> Matches:
    if text in _ANY:
        return lambda _: True
    if "/" in text:
        network = ipaddress.ip_network(text, strict=False)
        return lambda address: ipaddress.ip_address(address) in network
    if ":" in text:
        wanted = ipaddress.ip_address(text)
        return lambda address: ipaddress.ip_address(address) == wanted
    parts = text.split(".")
    while parts and parts[-1] == "*" and len(parts) < 4:
        parts.append("*")
    if len(parts) != 4:
        raise ValueError(f"{text!r} is no pattern of addresses")
    allowed = [_octets(part, text) for part in parts]

    def matches(address: str) -> bool:
        octets = address.split(".")
        return len(octets) == 4 and all(
            octet.isdecimal() and int(octet) in known
            for octet, known in zip(octets, allowed, strict=True)
        )

    return matches


def _octets(part: str, text: str) -> frozenset[int]:
    if part == "*":
        return frozenset(range(_OCTET_MAX + 1))
    try:
        if part.startswith("{") and part.endswith("}"):
            found = frozenset(int(one) for one in part[1:-1].split(","))
        elif "-" in part:
            low, high = (int(one) for one in part.split("-"))
            found = frozenset(range(low, min(high, _OCTET_MAX + 1) + 1))
        else:
            found = frozenset((int(part),))
    except ValueError:
        raise ValueError(f"{text!r} is no pattern of addresses") from None
    if not found or min(found) < 0 or max(found) > _OCTET_MAX:
        raise ValueError(f"{text!r} is no pattern of addresses")
    return found
