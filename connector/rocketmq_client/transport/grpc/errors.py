"""How a gRPC call ended -> the project's errors. The one place that knows gRPC's status codes."""

from __future__ import annotations

from typing import Final

from rocketmq_wire.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    LocalProtocolError,
    RocketMQError,
    broker_error,
)
from rocketmq_wire.grpc.bulk.mapping import error_from_metadata
from rocketmq_wire.grpc_headers import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL,
    INVALID_ARGUMENT,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNIMPLEMENTED,
)
from rocketmq_wire.grpc_session import CallEnded
from rocketmq_wire.stubs import SERVICE

_SYSTEM_ERROR: Final = 1
_BUSY: Final = 2
_UNKNOWN_REQUEST: Final = 3
_NO_PERMISSION: Final = 16


def error_of(address: str, ended: CallEnded) -> RocketMQError:
    """The error of a call that did not end well."""
    refusal = error_from_metadata(ended.metadata)
    if refusal is not None:
        return refusal
    status, text = ended.status, ended.text or f"gRPC status {ended.status}"
    if ended.is_unprocessed:
        # Nothing was done, as if there had been no connection: even a send may be repeated.
        return ConnectError(address, text)
    if status in (UNAVAILABLE, CANCELLED, INTERNAL):
        return ConnectionLostError(address, text)
    if status == DEADLINE_EXCEEDED:
        return DeadlineExceededError(address, text)
    if status == RESOURCE_EXHAUSTED:
        return _exhausted(text)
    if status in (UNAUTHENTICATED, PERMISSION_DENIED):
        return broker_error(_NO_PERMISSION, text)
    if status == UNIMPLEMENTED:
        return broker_error(
            _UNKNOWN_REQUEST,
            f"{address} does not serve this call of {SERVICE} ({text}). "
            "Only the bundled broker does; reach real clusters through nameServer.",
        )
    if status == INVALID_ARGUMENT:
        return LocalProtocolError(f"{address} cannot read our request: {text}")
    return broker_error(_SYSTEM_ERROR, text)


def _exhausted(text: str) -> RocketMQError:
    # gRPC has one status for "too large", where waiting cannot help, and for "too many".
    if "larger than" in text:
        return BrokerError(_SYSTEM_ERROR, text)
    return broker_error(_BUSY, text)
