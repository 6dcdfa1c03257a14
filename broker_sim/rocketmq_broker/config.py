"""A TOML file and command-line assignments -> a frozen, checked `BrokerConfig`.

Every key is a field of `BrokerConfig` with its default and its range. `conf/broker.toml` explains
the keys; a test keeps the two equal.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from rocketmq_broker.errors import ConfigError
from rocketmq_wire.limits import TOPIC_QUEUES_MAX
from rocketmq_wire.model import BODY_SIZE_MAX, NAME_PATTERN
from rocketmq_wire.numbers import whole_number

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FLUSH_MODES: Final = ("sync", "async", "memory")
TLS_MODES: Final = ("disabled", "permissive", "enforcing")
TLS_CLIENT_AUTH: Final = ("none", "optional", "require")
_KIB: Final = 1024
_MIB: Final = 1024 * 1024
_GIB: Final = 1024 * _MIB
_PORT_MAX: Final = 65_535


def _between(default: int, low: int, high: int) -> int:
    return field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """All settings of a broker, checked on construction."""

    # Addresses and names.
    host: str = "127.0.0.1"
    port: int = _between(0, 0, _PORT_MAX)
    name_server_apart: bool = False
    name_server_port: int = _between(0, 0, _PORT_MAX)
    name_server: str = ""
    name_server_access_key: str = ""
    name_server_secret_key: str = field(default="", repr=False)
    grpc: bool = True
    grpc_port: int = _between(0, 0, _PORT_MAX)
    advertised_host: str = ""
    broker_name: str = "broker-a"
    cluster_name: str = "DefaultCluster"

    # TLS and access control.
    tls_mode: str = "disabled"
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_client_auth: str = "none"
    tls_client_ca_file: str = ""
    acl_file: str = ""
    auth_file: str = ""

    # Storage.
    data_dir: str = "rocketmq-data"
    flush: str = "sync"
    flush_interval_ms: int = _between(500, 1, 60_000)
    commit_log_file_bytes: int = _between(256 * _MIB, 64 * _KIB, 2 * _GIB - 1)
    consume_queue_file_entries: int = _between(300_000, 16, 100_000_000)
    retention_hours: int = _between(72, 1, 24 * 365 * 100)
    disk_use_percent_max: int = _between(90, 1, 100)

    # Topics, groups, messages.
    auto_create_topic: bool = True
    auto_create_topic_queues: int = _between(8, 1, TOPIC_QUEUES_MAX)
    auto_create_group: bool = True
    commit_needs_group: bool = True
    message_bytes_max: int = _between(BODY_SIZE_MAX, 1, 128 * _MIB)

    # Delayed and transactional messages.
    timer_days_max: int = _between(3, 1, 3_650)
    transaction_timeout_ms: int = _between(6_000, 0, 86_400_000)
    transaction_check_interval_ms: int = _between(30_000, 100, 86_400_000)
    transaction_check_max: int = _between(15, 0, 1_000_000)

    # Pulls.
    transfer_count_max: int = _between(100_000, 1, 10_000_000)
    transfer_bytes_max: int = _between(4 * _MIB, _KIB, 15 * _MIB)
    pull_stops_at_queue_file_end: bool = False
    property_filter: bool = False
    long_polling: bool = True
    suspend_ms_max: int = _between(60_000, 0, 3_600_000)
    pop_retry_topic_v2: bool = False
    server_load_balancer: bool = True

    # Clients and limits.
    client_expiry_seconds: int = _between(120, 1, 86_400)
    progress_flush_ms: int = _between(5_000, 10, 3_600_000)
    idle_seconds: int = _between(120, 1, 86_400)
    connections_max: int = _between(4_096, 1, 1_000_000)
    output_bytes_max: int = _between(16 * _MIB, 64 * _KIB, _GIB)
    requests_in_flight_max: int = _between(4_096, 1, 1_000_000)
    held_pulls_max: int = _between(65_536, 1, 10_000_000)
    frame_bytes_max: int = _between(16 * _MIB, _KIB, _GIB)
    exit_with_parent: bool = False

    def __post_init__(self) -> None:
        for key in fields(self):
            _check(key, getattr(self, key.name))
        check_flush(self.flush)
        _check_security(self)
        for name in ("broker_name", "cluster_name"):
            if not NAME_PATTERN.fullmatch(getattr(self, name)):
                raise ConfigError(_refusal(name, "letters, digits, _ and -", getattr(self, name)))
        if not self.host:
            raise ConfigError(_refusal("host", "an address to listen on", self.host))
        _check_name_server(self)
        if self.flush != "memory" and not self.data_dir:
            raise ConfigError(_refusal("data_dir", "a folder, unless flush is memory", ""))

    @property
    def longest_hold_ms(self) -> int:
        """How long a pull or pop may wait for messages; 0: not at all."""
        return self.suspend_ms_max if self.long_polling else 0

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses at which the broker registers; empty if it is a name server itself."""
        parts = self.name_server.replace(",", ";").split(";")
        return tuple(part.strip() for part in parts if part.strip())

    @property
    def in_memory(self) -> bool:
        """True if nothing is written to the disk."""
        return self.flush == "memory"


_FIELDS: Final[Mapping[str, Field[Any]]] = {key.name: key for key in fields(BrokerConfig)}


def config_from(values: Mapping[str, object], where: str = "the configuration") -> BrokerConfig:
    """A configuration from keys and values; other keys keep their defaults.

    Raises ConfigError, with the nearest known key for an unknown one.

    Args:
        values: Values by key.
        where: The name of their origin, for errors.
    """
    for name in values:
        if name not in _FIELDS:
            near = difflib.get_close_matches(name, _FIELDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(_FIELDS)}"
            raise ConfigError(f"unknown key {name!r} in {where}: {hint}")
    return BrokerConfig(**values)  # type: ignore[arg-type]


def check_flush(value: object) -> None:
    """Raise ConfigError if a value is no flush mode."""
    if value not in FLUSH_MODES:
        raise ConfigError(_refusal("flush", f"one of {', '.join(FLUSH_MODES)}", value))


def read_values(path: Path) -> dict[str, object]:
    """The unchecked keys and values of a TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        values: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    return values


def load_config(path: Path, overrides: Mapping[str, object] | None = None) -> BrokerConfig:
    """The configuration of a TOML file; `overrides` win over it.

    Args:
        path: The TOML file.
        overrides: Values by key, which win over the file.
    """
    return config_from({**read_values(path), **(overrides or {})}, str(path))


def parse_assignment(text: str) -> tuple[str, object]:
    """The key and value of `key=value` from a command line, read by the key's type."""
    name, separator, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not separator:
        raise ConfigError(f"{text!r} is not key=value")
    kind = type(_FIELDS[name].default) if name in _FIELDS else str
    if kind is bool and value in ("true", "false"):
        return name, value == "true"
    if kind is int:
        try:
            return name, int(value)
        except ValueError:
            raise ConfigError(_refusal(name, "a whole number", value)) from None
    return name, value


def _check(key: Field[Any], value: Any) -> None:
    kind = type(key.default)
    # bool is an int in Python, so `port = true` must be refused by name.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        wanted = {str: "a text", bool: "true or false", int: "a whole number"}[kind]
        raise ConfigError(_refusal(key.name, wanted, value))
    if kind is int:
        low, high = key.metadata["low"], key.metadata["high"]
        if not low <= value <= high:
            raise ConfigError(_refusal(key.name, f"between {low} and {high}", value))


def _check_name_server(config: BrokerConfig) -> None:
    for address in config.name_servers:
        host, _, port = address.rpartition(":")
        number = whole_number(port)
        if not host.strip("[]") or number is None or not 0 < number <= _PORT_MAX:
            raise ConfigError(_refusal("name_server", "host:port;host:port", config.name_server))
    if config.name_server and config.name_server_apart:
        raise ConfigError("'name_server' and 'name_server_apart' exclude each other")
    if bool(config.name_server_access_key) != bool(config.name_server_secret_key):
        raise ConfigError("'name_server_access_key' and 'name_server_secret_key' need each other")


def _check_security(config: BrokerConfig) -> None:
    for name, known in (("tls_mode", TLS_MODES), ("tls_client_auth", TLS_CLIENT_AUTH)):
        if getattr(config, name) not in known:
            raise ConfigError(_refusal(name, f"one of {', '.join(known)}", getattr(config, name)))
    if config.tls_mode != "disabled":
        for name in ("tls_cert_file", "tls_key_file"):
            if not getattr(config, name):
                raise ConfigError(_refusal(name, f"a PEM file: tls_mode is {config.tls_mode}", ""))
    if config.tls_client_auth != "none" and not config.tls_client_ca_file:
        raise ConfigError(_refusal("tls_client_ca_file", "the authorities of clients", ""))
    if config.acl_file and config.auth_file:
        raise ConfigError("'acl_file' and 'auth_file' exclude each other: give one of them")


def _refusal(name: str, wanted: str, found: object) -> str:
    return f"{name!r} must be {wanted}, got {found!r}"
