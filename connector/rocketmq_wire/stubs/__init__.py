"""Owns the messages of the bulk gRPC service."""

from __future__ import annotations

from typing import Any, Final

from rocketmq_wire.stubs.service_messages import ServiceMessages

PACKAGE: Final = "rocketmq.bulk.v1"
SERVICE: Final = f"{PACKAGE}.Bulk"

_MESSAGES: Final = ServiceMessages("descriptors.binpb", SERVICE)
descriptor_files = _MESSAGES.descriptor_files
pool = _MESSAGES.pool
message_class = _MESSAGES.message_class
parse = _MESSAGES.parse
service = _MESSAGES.service


def serialize(message: Any) -> bytes:
    return bytes(message.SerializeToString())
