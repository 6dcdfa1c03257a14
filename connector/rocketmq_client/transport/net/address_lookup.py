"""Where the name servers are: as given, or as a web server says, like RocketMQ's own clients ask.

    GET http://jmenv.example:8080/rocketmq/nsaddr    ->    10.0.0.1:9876;10.0.0.2:9876

Asked before the first use, which waits for the answer, and again every two minutes, which does not:
name servers can be replaced while clients run. An answer that cannot be used changes nothing.
"""

from __future__ import annotations

import http.client
import logging
import threading
import time
from typing import Final
from urllib.parse import urlsplit

from rocketmq_client.settings import is_lookup, split_addresses
from rocketmq_wire.errors import ConnectError

_LOG = logging.getLogger(__name__)
REFRESH_SECONDS: Final = 120.0
_ANSWER_SIZE_MAX: Final = 64 * 1024
_OK: Final = 200


class NameServers:
    """The addresses of one transport."""

    def __init__(self, given: tuple[str, ...], *, timeout_ms: int) -> None:
        self._url = given[0] if given and is_lookup(given[0]) else None
        self._known = () if self._url else given
        self._timeout_ms = timeout_ms
        self._due = 0.0
        self._is_refreshing = False

    def addresses(self) -> tuple[str, ...]:
        """The addresses as they are known now. Raises ConnectError while none ever were."""
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
        """Ask again."""
        try:
            found = fetch_addresses(url, timeout_ms=self._timeout_ms)
            if found != self._known:
                _LOG.info("the name servers are now %s", ";".join(found))
            self._known = found
        except ConnectError as error:
            _LOG.warning("going on with the name servers as they were: %s", error)
        finally:
            self._due = time.monotonic() + REFRESH_SECONDS
            self._is_refreshing = False


def fetch_addresses(url: str, *, timeout_ms: int) -> tuple[str, ...]:
    """What the web server says. Raises ConnectError."""
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
