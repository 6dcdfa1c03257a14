"""The name servers' addresses, given or from a web server as RocketMQ's clients do; and our own.

    GET http://jmenv.example:8080/rocketmq/nsaddr    ->    10.0.0.1:9876;10.0.0.2:9876

The first use asks and waits. A thread asks again every two minutes: name servers can be replaced
while clients run. An unusable answer changes nothing.
"""

from __future__ import annotations

import http.client
import logging
import socket
import threading
import time
from typing import Final
from urllib.parse import urlsplit

from rocketmq_wire.addresses import is_lookup, split_addresses
from rocketmq_wire.errors import ConnectError

_LOG = logging.getLogger(__name__)
REFRESH_SECONDS: Final = 120.0
_ANSWER_SIZE_MAX: Final = 64 * 1024
_OK: Final = 200


class NameServers:
    def __init__(self, given: tuple[str, ...], *, timeout_ms: int) -> None:
        self._url = given[0] if given and is_lookup(given[0]) else None
        self._known = () if self._url else given
        self._timeout_ms = timeout_ms
        self._due = 0.0
        self._is_refreshing = False

    def addresses(self) -> tuple[str, ...]:
        """Return the known addresses. Raises ConnectError if there have never been any."""
        if self._url is None:
            return self._known
        if not self._known:
            self._known = fetch_addresses(self._url, timeout_ms=self._timeout_ms)
            self._due = time.monotonic() + REFRESH_SECONDS
        elif time.monotonic() >= self._due and not self._is_refreshing:
            self._is_refreshing = True
            threading.Thread(
                target=self.refresh, args=(self._url,), name="rocketmq-nsaddr", daemon=True
            ).start()
        return self._known

    def refresh(self, url: str) -> None:
        try:
            found = fetch_addresses(url, timeout_ms=self._timeout_ms)
            if found != self._known:
                _LOG.info("the name servers are now %s", ";".join(found))
            self._known = found
        except ConnectError as error:
            _LOG.warning("keeping the known name servers: %s", error)
        finally:
            self._due = time.monotonic() + REFRESH_SECONDS
            self._is_refreshing = False


def fetch_addresses(url: str, *, timeout_ms: int) -> tuple[str, ...]:
    """Ask the web server for the addresses. Raises ConnectError."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=timeout_ms / 1_000)
        try:
            connection.request("GET", f"{parts.path or '/'}{'?' * bool(parts.query)}{parts.query}")
            answer = connection.getresponse()
            text = answer.read(_ANSWER_SIZE_MAX).decode("ascii")
        finally:
            connection.close()
        if answer.status != _OK:
            raise ConnectError(url, f"it answered {answer.status} {answer.reason}")
        found = split_addresses(text)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ConnectError(url, f"no name servers from it: {error}") from error
    if not found or any(map(is_lookup, found)):
        raise ConnectError(url, f"it names no name servers: {text[:80]!r}")
    return found


def local_address() -> str:
    """This machine's address, as a client names itself to brokers; loopback if it has no name."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
