"""Serves gRPC on one port: the bulk service, RocketMQ's public one, health and reflection.

All of them run on the broker's own event loop. `start_grpc` starts them from a configuration.

grpcio's server ends if the path of a call is no UTF-8: it takes no more connections. A watch then
starts another one at the same port; the calls of the ended one continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.errors import PortTakenError
from rocketmq_broker.security.guard import Guard
from rocketmq_broker.security.tls_files import TlsFiles
from rocketmq_broker.servers.bulk_grpc.calls import SUSPEND_MS_MAX, BulkCalls, Shell
from rocketmq_broker.servers.public_grpc.caller import Service
from rocketmq_broker.servers.public_grpc.calls import PublicCalls
from rocketmq_broker.servers.public_grpc.lookup import Lookup
from rocketmq_broker.servers.public_grpc.renewals import Renewals
from rocketmq_broker.servers.public_grpc.sessions import Sessions
from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_broker.servers.sockets.addresses import BoundPorts, advertised_host, host_and_port
from rocketmq_broker.servers.sockets.descriptors import Room
from rocketmq_broker.servers.sockets.listener import INNER_HOST, GrpcFront
from rocketmq_wire.allocator import keep_freed_buffers
from rocketmq_wire.stubs import SERVICE, descriptor_files, public

_MIB: Final = 1024 * 1024
_START_TRIES_MAX: Final = 5
_WATCH_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 1.0
_ENDED_MAX: Final = 8
"""Ended servers whose calls continue; more are cut off."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """Limits on what clients make the server hold or do."""

    message_size_max: int = 16 * _MIB
    """Bytes of a request. A batch of records is the largest; TCP frames have the same limit."""
    connections_max: int = 4_096
    """Connections that no front counts; more are closed at once."""
    streams_per_connection_max: int = 256
    calls_max: int = 4_096
    """Concurrent calls, held pulls included; more are refused."""
    suspend_ms_max: int = SUSPEND_MS_MAX
    stop_grace_seconds: float = 0.5
    """The time that running calls get to finish at a stop; held pulls are cut off then."""


def server_options(limits: GrpcLimits) -> list[tuple[str, int | str]]:
    return [
        ("grpc.max_receive_message_length", limits.message_size_max),
        # The broker chooses the size: a chunk has a few MiB at most, or is one message of any size.
        ("grpc.max_send_message_length", -1),
        ("grpc.max_allowed_incoming_connections", limits.connections_max),
        ("grpc.max_concurrent_streams", limits.streams_per_connection_max),
        # A second broker on the port would silently get half of the connections.
        ("grpc.so_reuseport", 0),
        # Idle clients ping, some of them every 10 s: the server must not hang up on them.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_ping_strikes", 0),
        # Without keepalive, a peer that vanished would hold its streams and their chunks for ever.
        ("grpc.keepalive_time_ms", 120_000),
        ("grpc.keepalive_timeout_ms", 120_000),
        # As for TLS over remoting: a connection that says nothing holds a descriptor.
        ("grpc.server_handshake_timeout_ms", 10_000),
    ]


def reflection_pool() -> descriptor_pool.DescriptorPool:
    """The descriptors of all services, for reflection; those of this project are in no pool."""
    pool = descriptor_pool.DescriptorPool()
    for module in (health_pb2, reflection_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        pool.Add(file)
    for file in (*descriptor_files(), *public.descriptor_files()):
        pool.Add(file)
    return pool


class _Address(NamedTuple):
    host: str
    port: int
    tls_files: TlsFiles | None = None


@dataclass(slots=True)
class GrpcServer:
    """A running gRPC server; `port` is the bound port."""

    server: grpc.aio.Server
    make: Callable[[], grpc.aio.Server]
    """Makes a server with all services, not started yet."""
    addresses: tuple[_Address, ...]
    health: Any
    calls: BulkCalls
    host: str
    port: int
    limits: GrpcLimits
    public_calls: PublicCalls | None = None
    front: GrpcFront | None = None
    _ended: dict[grpc.aio.Server, asyncio.Task[None]] = field(default_factory=dict)
    _watch: asyncio.Task[None] | None = None

    def watch(self) -> None:
        self._watch = asyncio.get_running_loop().create_task(self._keep_serving())

    async def _keep_serving(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            # There is no public way to ask: `wait_for_termination` waits for the calls under way.
            if self.server._server.is_running():  # type: ignore[attr-defined]
                continue
            try:
                server = await self._started()
            except OSError as error:
                _LOG.error("gRPC ended and cannot serve again yet: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            _LOG.error(
                "grpc port=%d: a call ended the server, probably by a path that is no UTF-8; it "
                "serves again",
                self.port,
            )
            loop = asyncio.get_running_loop()
            self._ended[self.server] = loop.create_task(self._outlast(self.server))
            self.server = server
            if len(self._ended) > _ENDED_MAX:
                await _stop(next(iter(self._ended)), None)

    async def _started(self) -> grpc.aio.Server:
        server = self.make()
        for address in self.addresses:
            _bind(server, *address)
        await server.start()
        return server

    async def _outlast(self, ended: grpc.aio.Server) -> None:
        """Let the calls of an ended server finish."""
        with contextlib.suppress(UnicodeDecodeError):
            await ended.wait_for_termination()
        self._ended.pop(ended, None)

    async def stop(self) -> None:
        """Refuse new calls, give running ones a moment to finish, and close."""
        if self._watch is not None:
            self._watch.cancel()
        if self.front is not None:
            self.front.stop_listening()
        await self.health.enter_graceful_shutdown()
        self.calls.end_idle_streams()
        if self.public_calls is not None:
            self.public_calls.end()
        try:
            servers = (self.server, *self._ended)
            grace = self.limits.stop_grace_seconds
            await asyncio.gather(*(_stop(server, grace) for server in servers))
        finally:
            if self.front is not None:
                await self.front.close()


async def start_grpc(
    shell: EngineShell,
    config: BrokerConfig,
    bound: BoundPorts,
    tls_files: TlsFiles | None,
    guard: Guard | None,
    room: Room,
) -> GrpcServer:
    """Serve all of gRPC. Raises PortTakenError.

    gRPC binds its port itself, so the bound socket only shows that the port is free. If another
    process takes the port in between, another free port is tried, unless the port is prescribed.
    """
    lookup = Lookup(shell.engine, config.broker_name, advertised_host(config))
    sessions = Sessions(shell, expiry_seconds=config.client_expiry_seconds)
    service = Service(shell, guard, lookup, sessions, Renewals())
    is_any = bound.is_any("grpcPort")
    for tries_left in reversed(range(_START_TRIES_MAX if is_any else 1)):
        port = bound.port("grpcPort")
        bound.take("grpcPort").close()
        try:
            return await start_grpc_server(
                shell,
                config.host,
                port,
                limits=GrpcLimits(
                    connections_max=room.grpc_count_max, suspend_ms_max=config.suspend_ms_max
                ),
                tls_files=tls_files,
                takes_plaintext=config.tls_mode != "enforcing",
                guard=guard,
                public_service=service,
                room=room,
            )
        except OSError as error:
            if not tries_left:
                reason = error.strerror or str(error)
                raise PortTakenError(config.host, port, reason) from error
    raise AssertionError("unreachable")


async def start_grpc_server(
    shell: Shell,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    limits: GrpcLimits | None = None,
    tls_files: TlsFiles | None = None,
    takes_plaintext: bool = True,
    guard: Guard | None = None,
    public_service: Service | None = None,
    room: Room | None = None,
) -> GrpcServer:
    """Serve `shell` on the running loop, with TLS if `tls_files` is given.

    `guard` checks the callers of the services; health and reflection hold no secrets. The public
    service is served if `public_service` is given. Raises OSError if the port cannot be bound.
    """
    limits = limits or GrpcLimits()
    keep_freed_buffers()
    calls = BulkCalls(shell, local_host=host, suspend_ms_max=limits.suspend_ms_max, guard=guard)
    services = {SERVICE: calls.handlers()}
    # The package's types leave out what it makes only where grpc.aio exists: everywhere by now.
    servicer: Any = health.aio.HealthServicer()  # type: ignore[attr-defined]
    await servicer.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    names = [SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME]
    public_calls = None
    if public_service is not None:
        public_calls = PublicCalls(public_service, calls.peer_of)
        services[public.SERVICE] = public_calls.handlers()
        await servicer.set(public.SERVICE, health_pb2.HealthCheckResponse.SERVING)
        names.append(public.SERVICE)
    pool = reflection_pool()

    def make() -> grpc.aio.Server:
        server = grpc.aio.server(
            options=server_options(limits), maximum_concurrent_rpcs=limits.calls_max
        )
        for service, handlers in services.items():
            _add_handlers(server, service, handlers)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        reflection.enable_server_reflection(names, server, pool=pool)
        return server

    server = make()
    front = None
    if tls_files is None or not takes_plaintext:
        bound = _bind(server, host, port, tls_files)
        await server.start()
        addresses: tuple[_Address, ...] = (_Address(host, bound, tls_files),)
    else:
        assert room is not None
        front, addresses = await _start_behind_front(server, calls, host, port, tls_files, room)
        bound = front.port
    if public_calls is not None:
        public_calls.begin(bound)
    running = GrpcServer(
        server, make, addresses, servicer, calls, host, bound, limits, public_calls, front
    )
    running.watch()
    return running


async def _stop(server: grpc.aio.Server, grace: float | None) -> None:
    """Stop a server; one that ended by itself raises why."""
    with contextlib.suppress(UnicodeDecodeError):
        await server.stop(grace)


async def _start_behind_front(
    server: grpc.aio.Server,
    calls: BulkCalls,
    host: str,
    port: int,
    tls_files: TlsFiles,
    room: Room,
) -> tuple[GrpcFront, tuple[_Address, ...]]:
    """Serve plaintext and TLS on one port, behind a front that tells them apart."""
    # The front binds first: an inner port could otherwise take the port that was found free.
    front = GrpcFront(host, port, room)
    calls.relayed_peers = front.peers
    try:
        plain_port = _bind(server, INNER_HOST, 0)
        tls_port = _bind(server, INNER_HOST, 0, tls_files)
        await server.start()
        front.begin(plain_port=plain_port, tls_port=tls_port)
    except BaseException:
        await front.close()
        await server.stop(None)
        raise
    return front, (
        _Address(INNER_HOST, plain_port),
        _Address(INNER_HOST, tls_port, tls_files),
    )


def _credentials(tls_files: TlsFiles) -> grpc.ServerCredentials:
    """Credentials of one server that check for a new certificate at every connection."""
    shown = tls_files.texts()

    def configuration() -> grpc.ServerCertificateConfiguration:
        pairs = [(shown.key, shown.certificate)]
        return grpc.ssl_server_certificate_configuration(pairs, shown.client_ca)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        texts = tls_files.texts()
        if texts is shown:
            return None
        shown = texts
        return configuration()

    # None means that the certificate is unchanged; the package's types lack it.
    give = cast("Callable[[], grpc.ServerCertificateConfiguration]", fetch)
    return grpc.dynamic_ssl_server_credentials(
        configuration(), give, require_client_authentication=tls_files.client_auth == "require"
    )


def _add_handlers(
    server: grpc.aio.Server, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
) -> None:
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, dict(handlers)),)
    )


def _bind(server: grpc.aio.Server, host: str, port: int, tls_files: TlsFiles | None = None) -> int:
    address = host_and_port(host, port)
    # gRPC gives no reason for a failure. By far the usual one is another server on the port.
    failure = OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}: {address}")
    try:
        if tls_files is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, _credentials(tls_files))
    except RuntimeError as error:
        raise failure from error
    if not bound:
        raise failure
    return bound
