"""Where a cluster is, and how long to wait for it: values that travel to Spark's workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketmq_client.retry import RetryPolicy
from rocketmq_client.retry_schedules import REQUEST
from rocketmq_wire.addresses import split_addresses
from rocketmq_wire.signing import Credentials

# Pulls and statistics name a group even if nothing is committed. It is never registered.
READER_GROUP: Final = "pyspark-rocketmq-reader"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Trusted certificates and the client's own. Files are read by the process that connects.

    Raises ValueError.
    """

    ca_file: str | None = None
    """The file of trusted certificates; None: those of the operating system."""
    cert_file: str | None = None
    """The client's own certificate, with its chain (PEM)."""
    key_file: str | None = None
    """The key of the client's certificate (PEM)."""
    server_name: str | None = None
    """The name in a server's certificate; None: the host of its address."""
    verifies: bool = True
    """False accepts any certificate, as RocketMQ's own clients do: a man in the middle can read."""

    def __post_init__(self) -> None:
        if self.key_file and not self.cert_file:
            raise ValueError("a key is of no use without its certificate: give cert_file, too")
        if not self.verifies and (self.ca_file or self.server_name):
            raise ValueError("nothing is verified: ca_file and server_name would have no effect")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Name servers (TCP remoting) or endpoints (gRPC), and the time-outs of calls.

    Raises ValueError for settings that cannot be used together.
    """

    name_servers: tuple[str, ...] = ()
    """`host:port` each, or one `http://` address of a web server that names them."""
    endpoints: str | None = None
    """`host:port` of the bundled broker's gRPC service, instead of name servers."""
    connect_timeout_ms: int = 3_000
    """The limit for a connection."""
    request_timeout_ms: int = 5_000
    """The limit for a request other than a pull, its retries included."""
    retry_delay_ms: int = REQUEST.first_delay_ms
    """The first pause before a retry; it doubles each time."""
    retry_delay_ms_max: int = REQUEST.delay_ms_max
    """The longest pause before a retry."""
    outage_ms: int = 60_000
    """How long a download or a send waits for an unavailable broker."""
    address_map: Mapping[str, str] = field(default_factory=dict)
    """`host:port` or `host` that brokers publish -> the address to connect to (NAT)."""
    credentials: Credentials | None = None
    """The keys that sign requests; None: requests are not signed."""
    tls: TlsSettings | None = None
    """The encryption of connections; None: there is none."""

    def __post_init__(self) -> None:
        if bool(self.name_servers) == bool(self.endpoints):
            raise ValueError("exactly one of name_servers and endpoints must be given")
        if isinstance(self.name_servers, str):
            raise ValueError(f"name_servers must be a tuple: ({self.name_servers!r},)")
        object.__setattr__(self, "name_servers", split_addresses(";".join(self.name_servers)))
        for name in ("connect_timeout_ms", "request_timeout_ms", "outage_ms"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        RetryPolicy(self.retry_delay_ms, self.retry_delay_ms_max)

    @property
    def cluster_address(self) -> str:
        """The endpoints, or the name servers joined by semicolons."""
        return self.endpoints or ";".join(self.name_servers)

    @property
    def request_retry(self) -> RetryPolicy:
        """The retries of one request."""
        return RetryPolicy(self.retry_delay_ms, self.retry_delay_ms_max, limit_ms=self.outage_ms)

    def over_outage(self, preset: RetryPolicy) -> RetryPolicy:
        """A preset within `outage_ms`, with no pause above `retry_delay_ms_max`."""
        return preset.within(self.outage_ms, self.retry_delay_ms_max)
