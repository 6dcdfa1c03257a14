"""Chooses the transport that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, cast

from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.contract import Transport

# Loaded by name when chosen: whoever uses one should not pay for, or need, the other's libraries.
_TCP: Final = ("rocketmq_client.transport.tcp.transport", "TcpTransport")
_GRPC: Final = ("rocketmq_client.transport.grpc.transport", "GrpcTransport")


def open_transport(settings: ConnectionSettings) -> Transport:
    """Name servers speak TCP remoting, endpoints speak gRPC. Connects nothing yet."""
    module, name = _GRPC if settings.endpoints else _TCP
    make = cast("Callable[[ConnectionSettings], Transport]", getattr(import_module(module), name))
    return make(settings)
