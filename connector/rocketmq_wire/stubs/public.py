"""Owns the messages of RocketMQ's public gRPC service.

Separate from the bulk service's, so that a process loads only those it uses.
"""

from __future__ import annotations

from typing import Final

from rocketmq_wire.stubs.service_messages import ServiceMessages

PACKAGE: Final = "apache.rocketmq.v2"
SERVICE: Final = f"{PACKAGE}.MessagingService"

_MESSAGES: Final = ServiceMessages("public.binpb", SERVICE)
descriptor_files = _MESSAGES.descriptor_files
pool = _MESSAGES.pool
message_class = _MESSAGES.message_class
parse = _MESSAGES.parse
service = _MESSAGES.service
