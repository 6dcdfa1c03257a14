"""Chooses the transport that the settings ask for."""

from __future__ import annotations

from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport import Transport


def open_transport(settings: ConnectionSettings) -> Transport:
    """Name servers speak TCP remoting, endpoints speak gRPC. Connects nothing yet."""
    # Imported here: whoever uses one transport should not pay for, or need, the other's libraries.
    if settings.endpoints:
        from rocketmq_client.transport.grpc_channel import GrpcTransport

        return GrpcTransport(settings)
    from rocketmq_client.transport.tcp_socket import TcpTransport

    return TcpTransport(settings)
