"""What the public service knows without a request: its limits, the broker's topics and groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_broker.engine.engine import Engine
from rocketmq_wire.grpc.public.messages import (
    DELAY,
    FIFO,
    MESSAGE_TYPE_NAMES,
    NORMAL,
    TRANSACTION,
)
from rocketmq_wire.model import TopicConfig

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
_ANY: Final = (NORMAL, FIFO, DELAY, TRANSACTION)
_TYPES: Final = {name: (kind,) for kind, name in MESSAGE_TYPE_NAMES.items()} | {"MIXED": _ANY}


@dataclass(frozen=True, slots=True)
class PublicLimits:
    """Limits; those that RocketMQ's proxy does not have give a reason."""

    body_size_max: int = 4 * 1024 * 1024
    delay_ms_max: int = 24 * HOUR_MS
    recovery_ms_max: int = HOUR_MS
    poll_ms_min: int = 5_000
    poll_ms_max: int = 20_000
    invisible_ms_min: int = 10_000
    invisible_ms_max: int = 12 * HOUR_MS
    renewed_ms: int = MINUTE_MS
    receive_count_max: int = 32
    group_size_max: int = 64
    """Exclusive limit on the bytes of a message group."""
    user_properties_max: int = 128
    properties_size_max: int = 16 * 1024
    sessions_max: int = 65_536
    """Clients at a time. Each takes some kilobytes, and any caller can invent client ids."""
    settings_size_max: int = 128 * 1024
    """Bytes of a client's settings, which the broker keeps: some thousand subscriptions."""
    commands_max: int = 1_024
    """Unread commands to one client; beyond that its stream ends."""
    commands_size_max: int = 1024 * 1024
    """Bytes of unread commands to one client, unless it is one: a message has 4 MiB."""
    held_size_max: int = 128 * 1024 * 1024
    """Bytes of settings and unread commands of all clients."""
    pull_count_max: int = 1_024
    pull_bytes_max: int = 4 * 1024 * 1024


LIMITS: Final = PublicLimits()


@dataclass(frozen=True, slots=True)
class GroupLookup:
    is_fifo: bool
    attempts_max: int
    """Deliveries of a message, including the first."""
    backoff: Mapping[str, Any] | None = None
    """The group's own exponential policy; None for RocketMQ's delay levels."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The broker's topics and groups; used on the event loop's thread."""

    engine: Engine
    broker_name: str
    host: str
    """The host in routes; empty for the address that the client used."""

    def topic(self, name: str) -> TopicConfig | None:
        return self.engine.tables.topics.get(name)

    def group(self, name: str) -> GroupLookup:
        settings = self.engine.tables.groups.settings(name)
        policy = settings.get("groupRetryPolicy")
        backoff = None
        if isinstance(policy, dict) and policy.get("type") == "EXPONENTIAL":
            backoff = dict(policy.get("exponentialRetryPolicy") or {})
        return GroupLookup(
            bool(settings["consumeMessageOrderly"]), int(settings["retryMaxTimes"]) + 1, backoff
        )


def accepted_types(config: TopicConfig) -> tuple[int, ...]:
    """The message types that a topic takes; without a type, all but LITE and PRIORITY."""
    return _TYPES.get(config.attributes.get("message.type", "").upper(), _ANY)
