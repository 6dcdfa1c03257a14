"""Certificate and key files -> TLS settings of new connections; files that change count at once.

The files are looked at when a client greets, at most once a second. Files that cannot be used leave
the last good ones in force, and are complained of once. Running connections live on as they are.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LOG = logging.getLogger(__name__)
LOOK_SECONDS: Final = 1.0
CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}


class TlsFileError(ValueError):
    """A certificate, a key or a list of authorities cannot be used."""


@dataclass(frozen=True, slots=True, repr=False)
class PemTexts:
    """What the files hold. Never shown."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None


class TlsFiles:
    """The broker's certificate. Raises TlsFileError when made with files that cannot be used.

    Any thread may ask: gRPC does so from its own.
    """

    def __init__(
        self, cert_file: str, key_file: str, client_ca_file: str = "", client_auth: str = "none"
    ) -> None:
        self._paths = (cert_file, key_file, client_ca_file)
        self.client_auth = client_auth
        self._lock = threading.Lock()
        self._looked_at = time.monotonic()
        self._stamps = self._look()
        self._context, self._texts = self._load()

    def context(self) -> ssl.SSLContext:
        """For a connection that begins now."""
        self._refresh()
        return self._context

    def texts(self) -> PemTexts:
        """For a connection of gRPC that begins now; the same object while nothing has changed."""
        self._refresh()
        return self._texts

    def _refresh(self) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at < LOOK_SECONDS:
                return
            self._looked_at = now
            try:
                stamps = self._look()
                if stamps == self._stamps:
                    return
                self._stamps = stamps
                self._context, self._texts = self._load()
            except TlsFileError as error:
                _LOG.error("the certificate of before stays in force: %s", error)
                return
            _LOG.warning("a new certificate is in force: %s", self._paths[0])

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        found = []
        for path in filter(None, self._paths):
            try:
                stat = os.stat(path)
            except OSError as error:
                raise TlsFileError(f"cannot read {path}: {error.strerror}") from error
            found.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
        return tuple(found)

    def _load(self) -> tuple[ssl.SSLContext, PemTexts]:
        cert_file, key_file, client_ca_file = self._paths
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = CLIENT_AUTH[self.client_auth]
        path = cert_file
        try:
            context.load_cert_chain(cert_file, key_file, password=_no_pass_phrase)
            if client_ca_file:
                path = client_ca_file
                context.load_verify_locations(client_ca_file)
            texts = PemTexts(
                Path(cert_file).read_bytes(),
                Path(key_file).read_bytes(),
                Path(client_ca_file).read_bytes() if client_ca_file else None,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise TlsFileError(f"{path} cannot be used: {reason}") from error
        return context, texts


def _no_pass_phrase() -> str:
    raise ValueError("its key wants a pass phrase, which cannot be given")
