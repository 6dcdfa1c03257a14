"""Certificate and key files -> the TLS settings of new connections.

Changed files apply to new connections only.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketmq_broker.errors import ConfigError
from rocketmq_broker.security.reloaded_files import ReloadedFiles

CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True, repr=False)
class PemTexts:
    """The contents of the files, which must never be shown."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None


class TlsFiles:
    """The broker's certificate. Any thread may read it; gRPC does so from its own."""

    def __init__(
        self, cert_file: str, key_file: str, client_ca_file: str = "", client_auth: str = "none"
    ) -> None:
        """Load the files. Raises ConfigError."""
        self._paths = (cert_file, key_file, client_ca_file)
        self.client_auth = client_auth
        paths = [path for path in self._paths if path]
        self._files = ReloadedFiles("certificates", paths, self._load)

    def context(self) -> ssl.SSLContext:
        """The TLS settings of a new connection."""
        return self._files.value()[0]

    def texts(self) -> PemTexts:
        """The contents for a new connection of gRPC; the same object until the files change."""
        return self._files.value()[1]

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
            raise ConfigError(f"{path} cannot be used: {reason}") from error
        return context, texts


def _no_pass_phrase() -> str:
    raise ValueError("its key wants a pass phrase, which cannot be given")
