"""Owns the gRPC port: our service and RocketMQ's, health, reflection, on the broker's own loop.

With `facts` of the broker, RocketMQ's public service is there, too, on the same port.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from rocketmq_broker.security.guard import Guard
from rocketmq_broker.security.tls_files import TlsFiles
from rocketmq_broker.servers.bulk_grpc.calls import SUSPEND_MS_MAX, BulkCalls, Shell
from rocketmq_broker.servers.public_grpc.calls import PublicCalls
from rocketmq_broker.servers.public_grpc.limits import PublicLimits
from rocketmq_broker.servers.public_grpc.lookup import Facts
from rocketmq_broker.servers.public_grpc.sessions import Listening
from rocketmq_broker.servers.sockets.grpc_front import INNER_HOST, GrpcFront
from rocketmq_wire.allocator import keep_freed_buffers
from rocketmq_wire.stubs import SERVICE, descriptor_files, public

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """What clients may make the server hold or do."""

    message_size_max: int = 16 * _MIB
    """Of a request. A batch of records is the largest; TCP's frames have the same limit."""
    streams_per_connection_max: int = 256
    calls_max: int = 4_096
    """Calls under way at once, held pulls among them; more are refused."""
    suspend_ms_max: int = SUSPEND_MS_MAX
    stop_grace_seconds: float = 0.5
    """What is under way at a stop may finish within this time; held pulls are cut off then."""


def server_options(limits: GrpcLimits) -> list[tuple[str, int | str]]:
    """The channel arguments of the server."""
    return [
        ("grpc.max_receive_message_length", limits.message_size_max),
        # Ours to choose: a chunk is a few MiB at most, or one message of any size.
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", limits.streams_per_connection_max),
        # A second broker on the port would silently get half of the connections.
        ("grpc.so_reuseport", 0),
        # Clients ping while nothing is under way, some of them every 10 s: no reason to hang up.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_ping_strikes", 0),
        # A peer that vanished without a word would keep its streams, and their chunks, for ever.
        ("grpc.keepalive_time_ms", 120_000),
        ("grpc.keepalive_timeout_ms", 120_000),
    ]


def reflection_pool() -> descriptor_pool.DescriptorPool:
    """A pool with everything that reflection is asked about: ours is private, theirs is not."""
    pool = descriptor_pool.DescriptorPool()
    for module in (health_pb2, reflection_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        pool.Add(file)
    for file in (*descriptor_files(), *public.descriptor_files()):
        pool.Add(file)
    return pool


class PublicShell(Shell, Listening, Protocol):
    """What the public service asks of the broker."""


@dataclass(frozen=True, slots=True)
class PublicService:
    """RocketMQ's own service over a shell."""

    shell: PublicShell
    facts: Facts
    limits: PublicLimits = PublicLimits()  # noqa: RUF009 - a frozen value
    expiry_seconds: float = 120.0


class GrpcServer:
    """A serving gRPC server. `port` is the bound one."""

    def __init__(
        self,
        server: grpc.aio.Server,
        servicer: Any,
        calls: BulkCalls,
        *,
        host: str,
        port: int,
        limits: GrpcLimits,
        public_calls: PublicCalls | None = None,
        front: GrpcFront | None = None,
    ) -> None:
        self._front, self._public_calls = front, public_calls
        self._server, self._health, self._limits = server, servicer, limits
        self._calls = calls
        self.host, self.port = host, port

    async def stop(self) -> None:
        """Take no more calls, let those under way finish for a moment, close."""
        if self._front is not None:
            self._front.stop_listening()
        await self._health.enter_graceful_shutdown()
        self._calls.end_idle_streams()
        if self._public_calls is not None:
            self._public_calls.end()
        try:
            await self._end()
        finally:
            if self._front is not None:
                await self._front.close()

    async def _end(self) -> None:
        await self._server.stop(self._limits.stop_grace_seconds)


async def start_grpc_server(
    shell: Shell,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    limits: GrpcLimits | None = None,
    tls_files: TlsFiles | None = None,
    takes_plaintext: bool = True,
    guard: Guard | None = None,
    public_service: PublicService | None = None,
) -> GrpcServer:
    """Serve `shell` on the running loop; with `tls_files` TLS is taken, too.

    `guard` asks who calls the services; health and reflection tell nothing secret.

    Raises OSError when the port cannot be had.
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
        public_calls = _public_calls(public_service, calls, guard)
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
        public_calls.own_port = bound
        public_calls.begin()
    return GrpcServer(
        server,
        servicer,
        calls,
        host=host,
        port=bound,
        limits=limits,
        public_calls=public_calls,
        front=front,
    )


def _public_calls(service: PublicService, calls: BulkCalls, guard: Guard | None) -> PublicCalls:
    return PublicCalls(
        service.shell,
        service.shell,
        service.facts,
        peer_of=calls.peer_of,
        limits=service.limits,
        guard=guard,
        expiry_seconds=service.expiry_seconds,
    )


async def _start_behind_front(
    server: grpc.aio.Server,
    calls: BulkCalls,
    host: str,
    port: int,
    credentials: grpc.ServerCredentials,
) -> GrpcFront:
    """Take plaintext and TLS on one port, and tell the two apart there."""
    # First, or an inner port could be the very one that was found free for it.
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
    """Certificates that are looked at anew for every connection."""
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

    # None says "as before", which the package's types leave out.
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
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if credentials is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        # gRPC does not say why. The usual reason by far is another server on the port.
        raise OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}: {address}") from error
    if not bound:
        raise OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}: {address}")
    return bound
