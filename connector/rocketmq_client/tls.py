"""A user's encryption settings: values that travel to Spark's workers, without the keys."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Trusted certificates and the client's own. Files are read by the process that connects.

    Raises ValueError.
    """

    ca_file: str | None = None
    """The file of trusted certificates; None: those of the operating system."""
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    """The name in a server's certificate; None: the host of its address."""
    verifies: bool = True
    """False accepts any certificate, as RocketMQ's own clients do: a man in the middle can read."""

    def __post_init__(self) -> None:
        if self.key_file and not self.cert_file:
            raise ValueError("a key is of no use without its certificate: give cert_file, too")
        if not self.verifies and (self.ca_file or self.server_name):
            raise ValueError("nothing is verified: ca_file and server_name would have no effect")
