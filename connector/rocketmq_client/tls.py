"""What a user says about encryption: values that travel to Spark's workers, never the keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketmq_wire.signing import Credentials


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Whom to trust, and what to show. Files are read where a connection is made.

    Raises ValueError.
    """

    ca_file: str | None = None
    """Certificates to trust; None: those of the operating system."""
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    """The name that servers must show; None: the host they were reached by."""
    verifies: bool = True
    """False takes any certificate, as RocketMQ's own clients do: it keeps out listeners only."""

    def __post_init__(self) -> None:
        if self.key_file and not self.cert_file:
            raise ValueError("a key without its certificate shows nothing: give cert_file, too")
        if not self.verifies and (self.ca_file or self.server_name):
            raise ValueError("nothing is verified: ca_file and server_name would have no effect")


class Security(NamedTuple):
    """How requests are signed and connections encrypted; None: not at all."""

    credentials: Credentials | None
    tls: TlsSettings | None


OPEN_TO_ALL: Final = Security(None, None)
