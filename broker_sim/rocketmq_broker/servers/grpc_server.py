"""Serves gRPC on one port: the bulk service, RocketMQ's public one, health and reflection.

All of them run on the broker's own event loop. `start_grpc` starts them from a configuration.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

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
from rocketmq_broker.servers.sockets.listener import INNER_HOST, GrpcFront
from rocketmq_wire.allocator import keep_freed_buffers
from rocketmq_wire.stubs import SERVICE, descriptor_files, public

_MIB: Final = 1024 * 1024
_START_TRIES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """Limits on what clients make the server hold or do."""

    message_size_max: int = 16 * _MIB
    """Bytes of a request. A batch of records is the largest; TCP frames have the same limit."""
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


@dataclass(frozen=True, slots=True)
class GrpcServer:
    """A running gRPC server; `port` is the bound port."""

    server: grpc.aio.Server
    health: Any
    calls: BulkCalls
    host: str
    port: int
    limits: GrpcLimits
    public_calls: PublicCalls | None = None
    front: GrpcFront | None = None

    async def stop(self) -> None:
        """Refuse new calls, give running ones a moment to finish, and close."""
        if self.front is not None:
            self.front.stop_listening()
        await self.health.enter_graceful_shutdown()
        self.calls.end_idle_streams()
        if self.public_calls is not None:
            self.public_calls.end()
        try:
            await self.server.stop(self.limits.stop_grace_seconds)
        finally:
            if self.front is not None:
                await self.front.close()


async def start_grpc(
    shell: EngineShell,
    config: BrokerConfig,
    bound: BoundPorts,
    tls_files: TlsFiles | None,
    guard: Guard | None,
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
                limits=GrpcLimits(suspend_ms_max=config.suspend_ms_max),
                tls_files=tls_files,
                takes_plaintext=config.tls_mode != "enforcing",
                guard=guard,
                public_service=service,
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
) -> GrpcServer:
    """Serve `shell` on the running loop, with TLS if `tls_files` is given.

    `guard` checks the callers of the services; health and reflection hold no secrets. The public
    service is served if `public_service` is given. Raises OSError if the port cannot be bound.
    """
    limits = limits or GrpcLimits()
    keep_freed_buffers()
    server = grpc.aio.server(
        options=server_options(limits), maximum_concurrent_rpcs=limits.calls_max
    )
    calls = BulkCalls(shell, local_host=host, suspend_ms_max=limits.suspend_ms_max, guard=guard)
    _add_handlers(server, SERVICE, calls.handlers())
    # The package's types leave out what it makes only where grpc.aio exists: everywhere by now.
    servicer: Any = health.aio.HealthServicer()  # type: ignore[attr-defined]
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    await servicer.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    names = [SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME]
    public_calls = None
    if public_service is not None:
        public_calls = PublicCalls(public_service, calls.peer_of)
        _add_handlers(server, public.SERVICE, public_calls.handlers())
        await servicer.set(public.SERVICE, health_pb2.HealthCheckResponse.SERVING)
        names.append(public.SERVICE)
    reflection.enable_server_reflection(names, server, pool=reflection_pool())
    credentials = None if tls_files is None else _credentials(tls_files)
    front = None
    if credentials is None or not takes_plaintext:
        bound = _bind(server, host, port, credentials)
        await server.start()
    else:
        front = await _start_behind_front(server, calls, host, port, credentials)
        bound = front.port
    if public_calls is not None:
        public_calls.begin(bound)
    return GrpcServer(server, servicer, calls, host, bound, limits, public_calls, front)


async def _start_behind_front(
    server: grpc.aio.Server,
    calls: BulkCalls,
    host: str,
    port: int,
    credentials: grpc.ServerCredentials,
) -> GrpcFront:
    """Serve plaintext and TLS on one port, behind a front that tells them apart."""
    # The front binds first: an inner port could otherwise take the port that was found free.
    front = GrpcFront(host, port)
    calls.relayed_peers = front.peers
    try:
        plain_port = _bind(server, INNER_HOST, 0)
        tls_port = _bind(server, INNER_HOST, 0, credentials)
        await server.start()
        front.begin(plain_port=plain_port, tls_port=tls_port)
    except BaseException:
        await front.close()
        await server.stop(None)
        raise
    return front


def _credentials(tls_files: TlsFiles) -> grpc.ServerCredentials:
    """Credentials that check for a new certificate at every connection."""
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


def _bind(
    server: grpc.aio.Server, host: str, port: int, credentials: grpc.ServerCredentials | None = None
) -> int:
    address = host_and_port(host, port)
    # gRPC gives no reason for a failure. By far the usual one is another server on the port.
    failure = OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}: {address}")
    try:
        if credentials is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise failure from error
    if not bound:
        raise failure
    return bound
