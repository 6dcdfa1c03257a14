"""Owns the messages of RocketMQ's public gRPC service.

Apart from those of our own service: who speaks only the one never loads the other.
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
