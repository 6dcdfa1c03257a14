"""A configuration -> a serving gRPC server beside a broker that serves already.

Loading gRPC takes as long as the broker's start does otherwise: `assembly` loads this by name, when
gRPC is to be served.
"""

from __future__ import annotations

from typing import Final

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.security.guard import Guard
from rocketmq_broker.security.tls_files import TlsFiles
from rocketmq_broker.servers.grpc_server import (
    GrpcLimits,
    GrpcServer,
    PublicService,
    start_grpc_server,
)
from rocketmq_broker.servers.public_grpc.lookup import EngineLookup
from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_broker.servers.sockets.addresses import PortTakenError
from rocketmq_broker.servers.sockets.bound_ports import BoundPorts, advertised_host

_TRIES_MAX: Final = 5


async def start_grpc(
    shell: EngineShell,
    config: BrokerConfig,
    bound: BoundPorts,
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
    facts = EngineLookup(shell.engine, config.broker_name, advertised_host(config))
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
