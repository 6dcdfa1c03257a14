"""A configuration -> a running broker on the current event loop: store, engine, servers."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from typing import Final

from rocketmq_broker_sim.config import BrokerConfig, ConfigError
from rocketmq_broker_sim.engine.engine import Engine
from rocketmq_broker_sim.engine.routes import WILDCARDS, Identity
from rocketmq_broker_sim.security.accounts import AccountFileError
from rocketmq_broker_sim.security.guard import Guard, make_guard
from rocketmq_broker_sim.security.tls_files import TlsFileError, TlsFiles
from rocketmq_broker_sim.servers.addresses import PortTakenError, bind, ipv4_of, port_of
from rocketmq_broker_sim.servers.grpc_server import (
    GrpcLimits,
    GrpcServer,
    PublicService,
    start_grpc_server,
)
from rocketmq_broker_sim.servers.public_grpc.facts import EngineFacts
from rocketmq_broker_sim.servers.remoting_server import RemotingServer, Role
from rocketmq_broker_sim.servers.shell import EngineShell, now_ms
from rocketmq_broker_sim.storage.configs import CONFIG_DIRECTORY
from rocketmq_broker_sim.storage.directory import check_data_directory
from rocketmq_broker_sim.storage.files import Files, OsFiles, join, read_file
from rocketmq_broker_sim.storage.memory_files import MemoryFiles
from rocketmq_broker_sim.storage.settings import FlushMode, StoreConfig
from rocketmq_broker_sim.storage.store import Store
from rocketmq_wire import lenient_json
from rocketmq_wire.buffers import keep_freed_buffers
from rocketmq_wire.model import Host

_LOG = logging.getLogger(__name__)
_ADDRESSES: Final = "addresses.json"
_TRIES_MAX: Final = 5
_OPTIONS: Final = {
    "port": "--port {}",
    "nameServerPort": "--set name_server_port={}",
    "grpcPort": "--grpc-port {}",
}


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where clients reach a running broker."""

    name_server: str
    endpoints: str | None
    """None without gRPC."""


class RunningBroker:
    """Everything a broker holds while it runs. Made by `start_broker`, ended by `stop`."""

    def __init__(
        self,
        shell: EngineShell,
        remoting: list[RemotingServer],
        grpc: GrpcServer | None,
        addresses: Addresses,
    ) -> None:
        self.shell, self.addresses = shell, addresses
        self._remoting, self._grpc = remoting, grpc

    async def stop(self) -> None:
        """Take no more requests, answer what waits, make everything durable."""
        for server in self._remoting:
            server.stop_listening()
        await self.shell.stop_serving()
        if self._grpc is not None:
            await self._grpc.stop()
        for server in self._remoting:
            await server.close()
        await self.shell.close()


async def start_broker(config: BrokerConfig) -> RunningBroker:
    """Open the store and serve. Raises StorageError, ConfigError."""
    keep_freed_buffers()
    if not config.in_memory:
        check_data_directory(config.data_dir)
    files: Files = MemoryFiles() if config.in_memory else OsFiles(config.data_dir)
    remembered = _remembered_ports(files)
    with _Bound(config, remembered) as bound:
        # The port is part of what the store writes, so one that is not known yet is taken before.
        port = config.port or remembered.get("port") or bound.port("port", config.port)
        store_host = Host(ipv4_of(_advertised_host(config)), port)
        store = Store.open(files, _store_config(config, store_host), now_ms())
        try:
            return await _serve(config, store, store_host, bound)
        except BaseException:
            store.close()
            raise


class _Bound:
    """The broker's sockets while it starts: closed again if it does not come to serving."""

    def __init__(self, config: BrokerConfig, remembered: dict[str, int]) -> None:
        self._host, self._remembered = config.host, remembered
        self._sockets: dict[str, socket.socket] = {}

    def __enter__(self) -> _Bound:
        return self

    def __exit__(self, *_: object) -> None:
        for left in self._sockets.values():
            left.close()

    def port(self, name: str, wanted: int) -> int:
        """The port of the socket called `name`, bound now if it was not."""
        if name not in self._sockets:
            self._sockets[name] = bind(
                self._host,
                port=wanted,
                remembered=self._remembered.get(name, 0),
                option=_OPTIONS[name],
            )
        return port_of(self._sockets[name])

    def is_any(self, name: str, wanted: int) -> bool:
        """True if any free port does."""
        return not wanted and not self._remembered.get(name, 0)

    def take(self, name: str, wanted: int) -> socket.socket:
        """The socket called `name`; the taker closes it."""
        self.port(name, wanted)
        return self._sockets.pop(name)


async def _serve(
    config: BrokerConfig, store: Store, store_host: Host, bound: _Bound
) -> RunningBroker:
    _LOG.info("store opened: %s", store.report)
    identity = Identity(
        config.broker_name,
        config.cluster_name,
        _advertised_host(config),
        bound.port("port", config.port),
        store_host,
    )
    tls_files, guard = _tls_files(config), _guard(config)
    engine = Engine(config, store, identity)
    shell = EngineShell(engine, store, config)
    ports = {"port": identity.port}
    name_server_port = identity.port
    if config.name_server_apart:
        name_server_port = bound.port("nameServerPort", config.name_server_port)
        ports["nameServerPort"] = name_server_port
    if config.grpc:
        ports["grpcPort"] = bound.port("grpcPort", config.grpc_port)
    await shell.start()
    remoting: list[RemotingServer] = []
    try:
        role = Role.BROKER if config.name_server_apart else Role.BOTH
        remoting.append(RemotingServer(shell, config, role, tls_files, guard))
        remoting[-1].listen(bound.take("port", config.port))
        if config.name_server_apart:
            remoting.append(RemotingServer(shell, config, Role.NAME_SERVER, tls_files))
            remoting[-1].listen(bound.take("nameServerPort", config.name_server_port))
        grpc = None
        if config.grpc:
            grpc = await _start_grpc(shell, config, bound, tls_files, guard)
            ports["grpcPort"] = grpc.port
        if not config.in_memory:
            store.configs.save(_ADDRESSES, ports)
    except BaseException:
        for server in remoting:
            server.stop_listening()
            await server.close()
        await shell.stop_serving()
        raise
    host = identity.host or "127.0.0.1"
    addresses = Addresses(
        _address(host, name_server_port), _address(host, ports["grpcPort"]) if grpc else None
    )
    return RunningBroker(shell, remoting, grpc, addresses)


def _tls_files(config: BrokerConfig) -> TlsFiles | None:
    if config.tls_mode == "disabled":
        return None
    try:
        return TlsFiles(
            config.tls_cert_file,
            config.tls_key_file,
            config.tls_client_ca_file,
            config.tls_client_auth,
        )
    except TlsFileError as error:
        raise ConfigError(str(error)) from error


def _guard(config: BrokerConfig) -> Guard | None:
    try:
        return make_guard(config.acl_file, config.auth_file)
    except AccountFileError as error:
        raise ConfigError(str(error)) from error


async def _start_grpc(
    shell: EngineShell,
    config: BrokerConfig,
    bound: _Bound,
    tls_files: TlsFiles | None,
    guard: Guard | None,
) -> GrpcServer:
    """gRPC binds for itself: our socket only found out that the port is free.

    Whoever takes it in between has it; then another one does as well, if any did.
    """
    is_any = bound.is_any("grpcPort", config.grpc_port)
    for tries_left in reversed(range(_TRIES_MAX if is_any else 1)):
        port = bound.port("grpcPort", config.grpc_port)
        bound.take("grpcPort", config.grpc_port).close()
        try:
            return await _start_grpc_at(port, shell, config, tls_files, guard)
        except PortTakenError:
            if not tries_left:
                raise
    raise AssertionError("unreachable")


async def _start_grpc_at(
    port: int,
    shell: EngineShell,
    config: BrokerConfig,
    tls_files: TlsFiles | None,
    guard: Guard | None,
) -> GrpcServer:
    limits = GrpcLimits(suspend_ms_max=config.suspend_ms_max)
    facts = EngineFacts(shell.engine, config.broker_name, _advertised_host(config))
    try:
        return await start_grpc_server(
            shell,
            config.host,
            port,
            limits=limits,
            tls_files=tls_files,
            takes_plaintext=config.tls_mode != "enforcing",
            guard=guard,
            public_service=PublicService(shell, facts, expiry_seconds=config.client_expiry_seconds),
        )
    except OSError as error:
        raise PortTakenError(config.host, port, error.strerror or str(error)) from error


def _remembered_ports(files: Files) -> dict[str, int]:
    data = read_file(files, join(CONFIG_DIRECTORY, _ADDRESSES))
    stored = lenient_json.loads(data) if data is not None else {}
    if not isinstance(stored, dict):
        return {}
    return {name: port for name, port in stored.items() if isinstance(port, int)}


def _store_config(config: BrokerConfig, store_host: Host) -> StoreConfig:
    return StoreConfig(
        flush=FlushMode(config.flush),
        store_host=store_host,
        segment_size=config.commit_log_file_bytes,
        queue_file_entries=config.consume_queue_file_entries,
        retention_ms=config.retention_hours * 3_600_000,
        disk_used_ratio_max=config.disk_use_percent_max / 100,
    )


def _advertised_host(config: BrokerConfig) -> str:
    """Empty when the broker listens everywhere: each client then hears the address it used."""
    if config.advertised_host:
        return config.advertised_host
    return "" if config.host in WILDCARDS else config.host


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
