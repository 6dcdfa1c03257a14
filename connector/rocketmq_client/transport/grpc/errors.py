"""Turns the end of a gRPC call into an error; the only module that knows gRPC's status codes."""

from __future__ import annotations

from typing import Final

from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    LocalProtocolError,
    RemoteProtocolError,
    RocketMQError,
    broker_error,
)
from rocketmq_wire.grpc.bulk.mapping import error_from_metadata
from rocketmq_wire.stubs import SERVICE

Metadata = tuple[tuple[str, str | bytes], ...]

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16

_UNCONNECTED: Final = ("Failed to connect to remote host", "connection attempt timed out")


def error_of(address: str, status: int, details: str, metadata: Metadata) -> RocketMQError:
    refusal = error_from_metadata(metadata)
    if refusal is not None:
        return refusal
    text = details or f"gRPC status {status}"
    if status == UNAVAILABLE:
        return _unavailable(address, text)
    if status in (CANCELLED, INTERNAL):
        return ConnectionLostError(address, text)
    if status == DEADLINE_EXCEEDED:
        return DeadlineExceededError(address, text)
    if status == RESOURCE_EXHAUSTED:
        return _exhausted(text)
    if status in (UNAUTHENTICATED, PERMISSION_DENIED):
        return broker_error(ResponseCode.NO_PERMISSION, text)
    if status == UNIMPLEMENTED:
        return broker_error(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f"{address} does not serve this call of {SERVICE} ({text}). "
            "Only the bundled broker does; reach real clusters through nameServer.",
        )
    if status == INVALID_ARGUMENT:
        return LocalProtocolError(f"{address} cannot read our request: {text}")
    return broker_error(ResponseCode.SYSTEM_ERROR, text)


def _unavailable(address: str, text: str) -> RocketMQError:
    # gRPC has one status for every failed connection; only its text distinguishes them.
    if "Failed parsing HTTP/2" in text:
        return RemoteProtocolError(f"{address} does not speak HTTP/2: {text}")
    if any(words in text for words in _UNCONNECTED):
        # Nothing was sent: even a send may be repeated.
        return ConnectError(address, text)
    return ConnectionLostError(address, text)


def _exhausted(text: str) -> RocketMQError:
    # gRPC has one status for "too large", where waiting cannot help, and for "too many".
    if "CLIENT:" in text:
        return RemoteProtocolError(f"an answer is over the limit: {text}")
    if "larger than" in text:
        return BrokerError(ResponseCode.SYSTEM_ERROR, text)
    return broker_error(ResponseCode.SYSTEM_BUSY, text)
