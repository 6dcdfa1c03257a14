"""The limits of the public service: those of RocketMQ's proxy, and some of the broker's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS


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
    pull_count_max: int = 1_024
    pull_bytes_max: int = 4 * 1024 * 1024
