"""Addresses as people write them: `host:port;host:port`, as RocketMQ's Java clients take them."""

from __future__ import annotations

import re
from typing import Final

NAME_SERVER_PORT: Final = 9_876
_HOST: Final = re.compile(r"[^\s:/\[\]]+|[0-9a-fA-F:.%]*:[0-9a-fA-F:.%]+")
_SCHEME: Final = re.compile(r"^http://([^/]+)/?$")


def split_addresses(text: str, default_port: int | None = None) -> tuple[str, ...]:
    """Split `host:port;host:port`; some may have `http://` in front. Raises ValueError."""
    parts = (part.strip() for part in text.replace(",", ";").split(";"))
    # RocketMQ's Java clients ignore the scheme in front of an address; a URL has a path.
    bare = (_SCHEME.sub(r"\1", part) for part in parts if part)
    addresses = tuple(_with_port(address, default_port) for address in bare)
    for address in addresses:
        if not is_lookup(address):
            split_address(address)
        elif len(addresses) > 1:
            raise ValueError(f"{address} names the name servers: give it alone")
    return addresses


def _with_port(address: str, port: int | None) -> str:
    is_bare = ":" not in address.rpartition("]")[2]
    return address if port is None or not is_bare else f"{address}:{port}"


def is_lookup(address: str) -> bool:
    """Whether this is a web server that lists the name servers."""
    return address.startswith(("http://", "https://"))


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port`; an IPv6 host may stand in brackets. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    host = host.strip("[]")
    if not colon or not _HOST.fullmatch(host) or not port.isascii() or not port.isdigit():
        raise ValueError(f"an address is host:port, got {address!r}")
    if not 0 < int(port) < 65_536:
        raise ValueError(f"no such port: {address!r}")
    return host, int(port)
