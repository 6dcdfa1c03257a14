"""A configuration -> a running broker on the current event loop: store, engine, servers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.core.routes import Identity
from rocketmq_broker.engine.engine import Engine
from rocketmq_broker.security.guard import Guard, make_guard
from rocketmq_broker.security.tls_files import TlsFiles
from rocketmq_broker.servers.remoting.server import RemotingServer, Role
from rocketmq_broker.servers.shell.clock import BrokerClock
from rocketmq_broker.servers.shell.registration import RegisteredShell, Registration
from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_broker.servers.sockets.addresses import (
    BoundPorts,
    advertised_host,
    host_and_port,
    ipv4_of,
    is_loopback,
)
from rocketmq_broker.servers.sockets.descriptors import Room, room_for
from rocketmq_broker.storage.disk.config_files import CONFIG_DIRECTORY
from rocketmq_broker.storage.disk.files import Files, MemoryFiles, OsFiles, join, read_file
from rocketmq_broker.storage.recovery.recover import check_data_directory
from rocketmq_broker.storage.settings import FlushMode, StoreConfig
from rocketmq_broker.storage.store import Store
from rocketmq_wire import fastjson
from rocketmq_wire.allocator import keep_freed_buffers
from rocketmq_wire.errors import MissingPackageError, RemoteProtocolError
from rocketmq_wire.model import Host

if TYPE_CHECKING:
    from rocketmq_broker.servers.grpc_server import GrpcServer

_LOG = logging.getLogger(__name__)
_ADDRESSES: Final = "addresses.json"
# Loaded by name only to serve gRPC: its libraries take as long to load as the broker to start.
_GRPC_SERVER: Final = "rocketmq_broker.servers.grpc_server"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where clients reach a running broker."""

    name_server: str
    """The broker's own, or those where it is registered."""
    endpoints: str | None
    """None if gRPC is not served, or not yet."""


class RunningBroker:
    """The parts of a running broker. `start_broker` makes it, `stop` ends it."""

    def __init__(
        self,
        shell: EngineShell,
        remoting: dict[str, RemotingServer],
        addresses: Addresses,
        host: str,
        registration: Registration | None,
        begin_grpc: Callable[[BoundPorts | None], Awaitable[GrpcServer]],
    ) -> None:
        self.shell = shell
        self.addresses = addresses
        self._host = host
        """The host by which clients on this machine reach the broker."""
        self._registration = registration
        """None if the broker is its own name server."""
        self._remoting = remoting
        """The servers of the TCP protocol, by the name of their port."""
        self._grpc: GrpcServer | None = None
        self._begin_grpc = begin_grpc
        self._grpc_lock = asyncio.Lock()
        self._is_stopping = False

    async def start(self, bound: BoundPorts, *, serves_grpc: bool) -> None:
        """Serve, and remember the ports. A start that fails leaves nothing that runs."""
        try:
            ports = {name: bound.port(name) for name in self._remoting}
            for name, server in self._remoting.items():
                server.listen(bound.take(name))
            if serves_grpc:
                await self.serve_grpc(bound)
                assert self._grpc is not None
                ports["grpcPort"] = self._grpc.port
            if self._registration is not None:
                await self._registration.begin()
            if not self.shell.config.in_memory:
                self.shell.store.configs.save(_ADDRESSES, ports)
        except BaseException:
            await self.stop()
            raise

    async def serve_grpc(self, bound: BoundPorts | None = None) -> Addresses:
        """Serve gRPC if it is not served yet, on a bound port if given.

        Raises ConfigError if its port is in use, and RuntimeError if the broker stops.
        """
        async with self._grpc_lock:
            if self._is_stopping:
                raise RuntimeError("the broker stops: it serves no gRPC any more")
            if self._grpc is None:
                self._grpc = await self._begin_grpc(bound)
                endpoints = host_and_port(self._host, self._grpc.port)
                self.addresses = replace(self.addresses, endpoints=endpoints)
        return self.addresses

    async def stop(self) -> None:
        """Take no more requests, answer the held ones, and make everything durable."""
        self._is_stopping = True
        if self._registration is not None:
            await self._registration.end()
        for server in self._remoting.values():
            server.stop_listening()
        async with self._grpc_lock:
            pass  # Waits for a running start of gRPC, so that gRPC is stopped, too.
        await self.shell.stop_serving()
        if self._grpc is not None:
            await self._grpc.stop()
        for server in self._remoting.values():
            await server.close()
        await self.shell.close()


async def start_broker(config: BrokerConfig, *, grpc_when_asked: bool = False) -> RunningBroker:
    """Open the store and serve. Raises StorageError, ConfigError.

    With `grpc_when_asked`, `serve_grpc` starts gRPC, and the broker starts in half the time. This
    holds only for a broker in memory whose gRPC port is not given.
    """
    keep_freed_buffers()
    if not config.in_memory:
        check_data_directory(config.data_dir)
    files: Files = MemoryFiles() if config.in_memory else OsFiles(config.data_dir, spare=True)
    remembered = _remembered_ports(files)
    with BoundPorts(config, remembered) as bound:
        # Stored messages contain the port, so an unknown one is bound before the store opens.
        port = config.port or remembered.get("port") or bound.port("port")
        store_host = Host(ipv4_of(advertised_host(config)), port)
        store = Store.open(files, _store_config(config, store_host), time.time_ns() // 1_000_000)
        try:
            running = _assemble(config, store, store_host, bound)
            serves_grpc = config.grpc and not (
                grpc_when_asked and config.in_memory and not config.grpc_port
            )
            if serves_grpc:
                bound.port("grpcPort")
            await running.shell.start()
        except BaseException:
            store.close()
            raise
        await running.start(bound, serves_grpc=serves_grpc)
        return running


def _assemble(
    config: BrokerConfig, store: Store, store_host: Host, bound: BoundPorts
) -> RunningBroker:
    """The parts of a broker, which do not run yet."""
    _LOG.info("store opened: %s", store.report)
    if store.report.lite_parents:
        parents = "; ".join(map(str, store.report.lite_parents))
        _LOG.warning("lite topics are not supported: %s. Their queue files are kept", parents)
    host, port = advertised_host(config), bound.port("port")
    identity = Identity(config.broker_name, config.cluster_name, host, port, store_host)
    tls_files = _tls_files(config)
    guard = make_guard(config.acl_file, config.auth_file)
    if guard is None and not is_loopback(config.host):
        _LOG.warning(
            "host=%s: no accounts are set, so every client of this address may read, write and "
            "delete everything: set auth_file, or listen on 127.0.0.1",
            config.host,
        )
    room = room_for(config.connections_max)
    clock = BrokerClock(store.newest_ms)
    engine = Engine(config, store, identity, clock.ahead_ms)
    shell, registration = EngineShell(engine, store, config, clock), None
    if config.name_servers:
        registration = Registration(engine.tables, config, now_ms=clock.now_ms())
        shell = RegisteredShell(engine, store, config, clock, registration)
    roles = {"port": Role.BROKER if config.name_servers else Role.BOTH}
    if config.name_server_apart:
        roles = {"port": Role.BROKER, "nameServerPort": Role.NAME_SERVER}
    remoting = {
        name: RemotingServer(shell, config, role, tls_files, guard, room=room)
        for name, role in roles.items()
    }
    own_host = host or "127.0.0.1"
    own_port = bound.port("nameServerPort" if config.name_server_apart else "port")
    name_server = ";".join(config.name_servers) or host_and_port(own_host, own_port)
    begin_grpc = partial(_begin_grpc, shell, config, tls_files, guard, room)
    addresses = Addresses(name_server, None)
    return RunningBroker(shell, remoting, addresses, own_host, registration, begin_grpc)


async def _begin_grpc(
    shell: EngineShell,
    config: BrokerConfig,
    tls_files: TlsFiles | None,
    guard: Guard | None,
    room: Room,
    bound: BoundPorts | None,
) -> GrpcServer:
    with nullcontext(bound) if bound is not None else BoundPorts(config, {}) as ports:
        module = _grpc_module()
        server: GrpcServer = await module.start_grpc(shell, config, ports, tls_files, guard, room)
        return server


def _grpc_module() -> Any:
    try:
        return import_module(_GRPC_SERVER)
    except ModuleNotFoundError as error:
        raise MissingPackageError(str(error.name), "the broker's gRPC service") from None


def _tls_files(config: BrokerConfig) -> TlsFiles | None:
    if config.tls_mode == "disabled":
        return None
    return TlsFiles(
        config.tls_cert_file, config.tls_key_file, config.tls_client_ca_file, config.tls_client_auth
    )


def _remembered_ports(files: Files) -> dict[str, int]:
    data = read_file(files, join(CONFIG_DIRECTORY, _ADDRESSES))
    try:
        stored = fastjson.loads(data) if data is not None else {}
    except RemoteProtocolError as error:
        path = join(CONFIG_DIRECTORY, _ADDRESSES)
        _LOG.warning("file=%s: the ports of the last run are not known: %s", path, error)
        return {}
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
